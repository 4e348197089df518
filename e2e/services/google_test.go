package services_test

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/oauth2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	googlecreds "google.golang.org/grpc/credentials/google"
	"google.golang.org/grpc/credentials/oauth"
	"google.golang.org/grpc/interop"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// google stands in for Google, which interop's cases with credentials ask for tokens: an endpoint that gives tokens for signed
// assertions, a compute engine's metadata server, and a certificate that the system's pool of roots has. The credentials themselves
// are grpc's. The environment points to it from the beginning, since the roots are read once.
var google struct {
	keyFile string
	key     *rsa.PublicKey
	tls     credentials.TransportCredentials
}

const (
	account = "interop@otelproto.test"
	scope   = "https://www.googleapis.com/auth/xapi.zoo"
	// engineToken and assertedToken are what the two endpoints give.
	engineToken   = "of the compute engine"
	assertedToken = "for an assertion"
)

// startGoogle prepares everything in dir.
func startGoogle(dir string) (stop func(), err error) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return nil, err
	}

	google.key = &key.PublicKey
	mux := http.NewServeMux()
	server := httptest.NewServer(mux)
	token := func(w http.ResponseWriter, text string) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"access_token": %q, "token_type": "Bearer", "expires_in": 3600}`, text)
	}

	mux.HandleFunc("POST /token", func(w http.ResponseWriter, r *http.Request) {
		c, err := verify(r.FormValue("assertion"))
		if err != nil || c.Issuer != account || c.Scope == "" {
			http.Error(w, fmt.Sprint(c, err), http.StatusUnauthorized)

			return
		}

		token(w, assertedToken)
	})
	mux.HandleFunc("GET /computeMetadata/v1/instance/service-accounts/default/token", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Metadata-Flavor", "Google")
		token(w, engineToken)
	})

	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}

	text, err := json.Marshal(map[string]string{
		"type": "service_account", "client_email": account, "private_key_id": "1", "token_uri": server.URL + "/token",
		"private_key": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})),
	})
	if err != nil {
		return nil, err
	}

	google.keyFile = filepath.Join(dir, "key.json")
	roots := filepath.Join(dir, "roots.pem")

	certificate, err := certify(roots)
	if err != nil {
		return nil, err
	}

	google.tls = credentials.NewServerTLSFromCert(certificate)

	return server.Close, errors.Join(
		os.WriteFile(google.keyFile, text, 0o600),
		os.Setenv("GCE_METADATA_HOST", strings.TrimPrefix(server.URL, "http://")),
		os.Setenv("GOOGLE_APPLICATION_CREDENTIALS", google.keyFile),
		os.Setenv("SSL_CERT_FILE", roots),
	)
}

// certify gives a certificate of 127.0.0.1 and writes it to a file of roots.
func certify(roots string) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}

	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "interop"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}

	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}

	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key},
		os.WriteFile(roots, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600)
}

// claims are those that are read of a JWT.
type claims struct {
	Issuer string `json:"iss"`
	Scope  string `json:"scope"`
}

// verify checks a JWT's signature, RS256, and gives its claims.
func verify(token string) (c claims, err error) {
	dot := max(0, strings.LastIndexByte(token, '.'))
	signed := token[:dot]
	sum := sha256.Sum256([]byte(signed))

	mac, err := base64.RawURLEncoding.DecodeString(strings.TrimPrefix(token[dot:], "."))
	if err == nil {
		err = rsa.VerifyPKCS1v15(google.key, crypto.SHA256, sum[:], mac)
	}

	if err != nil {
		return c, err
	}

	_, payload, _ := strings.Cut(signed, ".")

	text, err := base64.RawURLEncoding.DecodeString(payload)
	if err != nil {
		return c, err
	}

	return c, json.Unmarshal(text, &c)
}

// callerOf tells who calls by the token of the call, and for what.
func callerOf(ctx context.Context) (user, granted string, err error) {
	md, _ := metadata.FromIncomingContext(ctx)
	token, bearer := strings.CutPrefix(strings.Join(md.Get("authorization"), ","), "Bearer ")

	switch {
	case !bearer:
		return "", "", status.Error(codes.Unauthenticated, "no token")
	case token == engineToken, token == assertedToken:
		return account, scope, nil
	}

	c, err := verify(token)
	if err != nil {
		return "", "", status.Errorf(codes.Unauthenticated, "%q: %v", token, err)
	}

	return c.Issuer, c.Scope, nil
}

// perRPC are the transport credentials of every case, and credentials for each call.
func perRPC(t *testing.T, c credentials.PerRPCCredentials, err error) []grpc.DialOption {
	t.Helper()

	if err != nil {
		t.Fatal(err)
	}

	return append(tlsOnly(t), grpc.WithPerRPCCredentials(c))
}

func tlsOnly(t *testing.T) []grpc.DialOption {
	t.Helper()

	// Elsewhere the system's roots aren't read from SSL_CERT_FILE.
	if runtime.GOOS != "linux" {
		t.Skip("interop's credentials trust the system's roots, which only Linux lets a test set")
	}

	return []grpc.DialOption{grpc.WithTransportCredentials(credentials.NewTLS(nil))}
}

func computeEngine(t *testing.T) []grpc.DialOption {
	t.Helper()

	return perRPC(t, oauth.NewComputeEngine(), nil)
}

func serviceAccount(t *testing.T) []grpc.DialOption {
	t.Helper()

	c, err := oauth.NewServiceAccountFromFile(google.keyFile, scope)

	return perRPC(t, c, err)
}

func jwtToken(t *testing.T) []grpc.DialOption {
	t.Helper()

	c, err := oauth.NewJWTAccessFromFile(google.keyFile)

	return perRPC(t, c, err)
}

func oauth2Token(t *testing.T) []grpc.DialOption {
	t.Helper()

	token := interop.GetToken(t.Context(), google.keyFile, scope)

	return perRPC(t, oauth.TokenSource{TokenSource: oauth2.StaticTokenSource(token)}, nil)
}

func googleDefault(t *testing.T) []grpc.DialOption {
	t.Helper()

	return append(tlsOnly(t), grpc.WithTransportCredentials(nil), grpc.WithCredentialsBundle(googlecreds.NewDefaultCredentials()))
}

func computeEngineChannel(t *testing.T) []grpc.DialOption {
	t.Helper()

	return append(tlsOnly(t), grpc.WithTransportCredentials(nil), grpc.WithCredentialsBundle(googlecreds.NewComputeEngineCredentials()))
}
