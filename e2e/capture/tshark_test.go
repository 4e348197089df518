package capture_test

import (
	"bufio"
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// capturing is a tshark that writes down what goes over the loopback interface.
type capturing struct {
	file    string
	command *exec.Cmd
	// lines has a line for each packet, as soon as it was written.
	lines chan string
	log   bytes.Buffer
	// marker is where datagrams are sent to see how far tshark is.
	marker *net.UDPConn
}

// capture starts tshark on a TCP port and returns when it captures. Without tshark, or without the right to capture, the test is
// skipped, or fails where CI=true.
func capture(t *testing.T, port int) *capturing {
	t.Helper()

	c, err := startCapture(t, port)
	if err != nil {
		missing(t, err.Error())
	}

	return c
}

// startCapture is capture whose error says what to do.
func startCapture(t *testing.T, port int) (*capturing, error) {
	t.Helper()

	if _, err := exec.LookPath("tshark"); err != nil {
		return nil, errors.New("no tshark on the PATH, which sees each message's length: install it (Debian: apt-get install tshark)")
	}

	c := &capturing{file: filepath.Join(t.TempDir(), "loopback.pcapng"), lines: make(chan string, 1<<16)}

	sink, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { sink.Close() })

	if c.marker, err = net.DialUDP("udp", nil, sink.LocalAddr().(*net.UDPAddr)); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { c.marker.Close() })

	filter := fmt.Sprintf("tcp port %d or udp port %d", port, sink.LocalAddr().(*net.UDPAddr).Port)
	c.command = exec.Command("tshark", "-i", "lo", "-B", "64", "-f", filter, "-w", c.file,
		"-P", "-l", "-n", "-T", "fields", "-e", "udp.length", "--disable-protocol", "http2")
	c.command.Stderr = &c.log

	out, err := c.command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}

	if err := c.command.Start(); err != nil {
		t.Fatal(err)
	}

	ended := make(chan struct{})

	go func() {
		defer close(ended)
		defer close(c.lines)

		for s := bufio.NewScanner(out); s.Scan(); {
			c.lines <- s.Text()
		}
	}()

	t.Cleanup(func() {
		c.command.Process.Kill()
		<-ended
		c.command.Wait()
	})

	return c, c.mark(t, 1)
}

// mark returns when tshark has written everything up to now: it sends datagrams of n bytes until it sees one. If tshark ends, the
// error says what to do.
func (c *capturing) mark(t *testing.T, n int) error {
	t.Helper()

	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()

	deadline := time.After(30 * time.Second)
	want := strconv.Itoa(n + 8) // with the header

	for {
		select {
		case line, ok := <-c.lines:
			if !ok {
				c.command.Wait() // so that the log is whole

				return fmt.Errorf("tshark ended, may this user capture on lo? Run the test as root, or give dumpcap the right to "+
					"(setcap cap_net_raw,cap_net_admin+eip on its path): %s", strings.TrimSpace(c.log.String()))
			}

			if line == want {
				return nil
			}
		case <-tick.C:
			if _, err := c.marker.Write(make([]byte, n)); err != nil {
				t.Fatal(err)
			}
		case <-deadline:
			t.Fatalf("tshark shows no packet within 30 s: %s", &c.log)
		}
	}
}

// stop ends the capture once it has everything.
func (c *capturing) stop(t *testing.T) {
	t.Helper()

	if err := c.mark(t, 2); err != nil {
		t.Fatal(err)
	}

	if err := c.command.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}

	for range c.lines { // until it has closed the file
	}
}

// message is one gRPC message, as anybody sees it.
type message struct {
	// Method is package.Service/Method.
	Method string
	// Request is true for what the client sends.
	Request       bool
	Type, Variant string
	// Wire is the length with the prefix of five bytes, Size the uncompressed length.
	Wire, Size int
	// Compressed is true where compression changed the length.
	Compressed bool
}

// decode gives the messages of the capture. protos is a folder with the .proto files, cases has the names of the oneofs' cases.
func (c *capturing) decode(t *testing.T, port int, protos string, cases map[string]bool) []message {
	t.Helper()

	command := exec.Command("tshark", "-r", c.file, "-n", "-d", fmt.Sprintf("tcp.port==%d,http2", port),
		"-o", fmt.Sprintf(`uat:protobuf_search_paths:"%s","TRUE"`, protos),
		"-Y", "grpc", "-T", "pdml", "-J", "grpc protobuf")
	command.Stderr = os.Stderr

	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}

	if err := command.Start(); err != nil {
		t.Fatal(err)
	}

	var messages []message

	for decoder := xml.NewDecoder(bufio.NewReader(out)); ; {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}

		if err != nil {
			t.Fatal(err)
		}

		start, ok := token.(xml.StartElement)
		if !ok || start.Name.Local != "proto" {
			continue
		}

		var layer field
		if err := decoder.DecodeElement(&layer, &start); err != nil {
			t.Fatal(err)
		}

		switch layer.Name {
		case "grpc":
			messages = append(messages, layer.message(t))
		case "protobuf":
			messages[len(messages)-1].name(layer, cases)
		}
	}

	if err := command.Wait(); err != nil {
		t.Fatal(err)
	}

	return messages
}

// field is an element of PDML, which has the layers of a packet in their order.
type field struct {
	Name     string  `xml:"name,attr"`
	Show     string  `xml:"show,attr"`
	ShowName string  `xml:"showname,attr"`
	Fields   []field `xml:"field"`
}

// find gives the fields of a name, wherever they are, but not below such a field.
func (f field) find(name string) []field {
	var found []field

	for _, c := range f.Fields {
		if c.Name == name {
			found = append(found, c)
		} else {
			found = append(found, c.find(name)...)
		}
	}

	return found
}

func (f field) number(t *testing.T, name string) int {
	t.Helper()

	found := f.find(name)
	if len(found) != 1 {
		t.Fatalf("%d fields %s", len(found), name)
	}

	n, err := strconv.Atoi(found[0].Show)
	if err != nil {
		t.Fatal(err)
	}

	return n
}

// message reads "GRPC Message: /package.Service/Method, Request" and what stands below it.
func (f field) message(t *testing.T) message {
	t.Helper()

	method, direction, ok := strings.Cut(strings.TrimPrefix(f.ShowName, "GRPC Message: /"), ", ")
	if !ok || direction != "Request" && direction != "Response" {
		t.Fatalf("no gRPC message: %q", f.ShowName)
	}

	m := message{Method: method, Request: direction == "Request", Wire: 5 + f.number(t, "grpc.message_length")}

	for _, data := range f.find("grpc.message_data") { // none of an empty message
		if _, err := fmt.Sscanf(data.ShowName, "Message Data: %d bytes", &m.Size); err != nil {
			t.Fatalf("%q: %v", data.ShowName, err)
		}
	}

	m.Compressed = m.Wire != m.Size+5
	if m.Compressed && f.number(t, "grpc.compressed_flag") != 1 {
		t.Errorf("%+v, but the flag says that it isn't compressed", m)
	}

	return m
}

// name reads the name of the protobuf message and which of the cases is one of its own fields.
func (m *message) name(f field, cases map[string]bool) {
	for _, outer := range f.Fields {
		for _, c := range outer.Fields {
			if c.Name == "protobuf.message.name" {
				m.Type = c.Show
			}

			for _, inner := range c.Fields {
				if inner.Name == "protobuf.field.name" && cases[inner.Show] {
					m.Variant = inner.Show
				}
			}
		}
	}
}

// missing skips the test on a laptop, and fails it where nothing may be skipped.
func missing(t *testing.T, what string) {
	t.Helper()

	if os.Getenv("CI") == "true" {
		t.Fatal(what)
	}

	t.Skip(what)
}
