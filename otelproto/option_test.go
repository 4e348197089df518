package otelproto_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"

	"github.com/otelproto/otelproto-go/otelproto"
	"github.com/otelproto/otelproto-go/stats"
)

func TestWrongOptionsAreReportedAndLeftOut(t *testing.T) {
	var (
		noProvider *stats.Registry
		noAttrs    func(context.Context) []attribute.KeyValue
		noFunc     func(any) (string, bool)
	)

	for _, c := range []struct {
		option otelproto.Option
		// The report names the option and what was expected.
		want []string
	}{
		{otelproto.WithMeterProvider(nil), []string{"WithMeterProvider", "expected a MeterProvider"}},
		{otelproto.WithRegistry(noProvider), []string{"WithRegistry", "expected a registry"}},
		{otelproto.WithBuckets(1, 1), []string{"WithBuckets", "bound 1 (1)", "expected increasing bounds"}},
		{otelproto.WithBuckets(2, 1), []string{"WithBuckets", "bound 1 (1)", "expected increasing bounds"}},
		{otelproto.WithBuckets(1, math.NaN()), []string{"WithBuckets", "bound 1 is NaN", "expected a finite number"}},
		{otelproto.WithBuckets(math.Inf(1)), []string{"WithBuckets", "bound 0 is +Inf", "expected a finite number"}},
		{otelproto.WithConnAttributes(nil), []string{"WithConnAttributes", "expected a function"}},
		{otelproto.WithRPCAttributes(noAttrs), []string{"WithRPCAttributes", "expected a function"}},
		{otelproto.WithVariantFunc(noFunc), []string{"WithVariantFunc", "expected a function"}},
		{otelproto.WithFilter(nil), []string{"WithFilter", "expected a function"}},
		{otelproto.WithKnownMethods(nil), []string{"WithKnownMethods", "expected a function"}},
		{otelproto.WithSeriesLimit(0), []string{"WithSeriesLimit", "0", "expected at least 1"}},
		{otelproto.WithSeriesLimit(-1), []string{"WithSeriesLimit", "-1", "expected at least 1"}},
		{otelproto.WithVariantField("no.Message", "a"), []string{"WithVariantField", "no.Message", "not found", "expected the full name"}},
		{
			otelproto.WithVariantField("no.Message", "a"),
			[]string{"not found in the registry of golang/protobuf", "takes effect if a message of that name turns up"},
		},
		{otelproto.WithVariantField("no..Message", "a"), []string{"WithVariantField", "no..Message", "expected the full name"}},
		{otelproto.WithVariantField("", "a"), []string{"WithVariantField", "expected the full name"}},
		{otelproto.WithVariantField("no.Message", "a..b"), []string{"WithVariantField", "a..b", "expected names of fields"}},
		{otelproto.WithVariantField("no.Message", ""), []string{"WithVariantField", "expected names of fields"}},
		{
			otelproto.WithVariantField("otelproto.test.Bundle", "commands"),
			[]string{"WithVariantField", "Bundle.commands is repeated", "expected a singular field"},
		},
		{
			otelproto.WithVariantField("otelproto.test.Bundle", "commands.batch.commands.kind"),
			[]string{"WithVariantField", "Batch.commands is repeated and so is otelproto.test.Bundle.commands", "expected one"},
		},
		{
			otelproto.WithVariantField("otelproto.test.Bundle", "by_name.kind"),
			[]string{"WithVariantField", "Bundle.by_name is a map", "expected a field that is none"},
		},
		{
			otelproto.WithVariantField("otelproto.test.Bundle", "commands.batch.commands"),
			[]string{"WithVariantField", "Batch.commands is repeated", "expected a singular field"},
		},
		{
			otelproto.WithVariantField("otelproto.test.Bundle", "ids.kind"),
			[]string{"WithVariantField", "Bundle.ids is not a message", `before "kind"`},
		},
		{
			otelproto.WithVariantField("otelproto.test.Bundle", "tagged.number"),
			[]string{"WithVariantField", "kind int32", "expected a oneof, enum"},
		},
		{
			otelproto.WithVariantField("otelproto.test.Bundle", "commands.nothing"),
			[]string{"WithVariantField", `otelproto.test.Command has no field or oneof "nothing"`},
		},
		{otelproto.WithVariantField("otelproto.test.Test", "a"), []string{"WithVariantField", "not a message"}},
		{
			otelproto.WithVariantField("otelproto.test.Tagged", "nothing"),
			[]string{"WithVariantField", `no field or oneof "nothing"`, "expected one of its own names"},
		},
		{otelproto.WithVariantField("otelproto.test.Tagged", ""), []string{"WithVariantField", `no field or oneof ""`}},
		{otelproto.WithVariantField("otelproto.test.Tagged", "header."), []string{"WithVariantField", `no field or oneof ""`}},
		{
			otelproto.WithVariantField("otelproto.test.Tagged", "payload"),
			[]string{"WithVariantField", "kind bytes", "expected a oneof, enum"},
		},
		{
			otelproto.WithVariantField("otelproto.test.Tagged", "number"),
			[]string{"WithVariantField", "kind int32", "expected a oneof, enum"},
		},
		{
			otelproto.WithVariantField("otelproto.test.Tagged", "header"),
			[]string{"WithVariantField", "kind message", "expected a oneof, enum"},
		},
		{
			otelproto.WithVariantField("otelproto.test.Tagged", "names"),
			[]string{"WithVariantField", "repeated", "expected a singular field"},
		},
		{otelproto.WithVariantField("otelproto.test.Tagged", "name.x"), []string{"WithVariantField", "not a message", `before "x"`}},
		{otelproto.WithVariantField("otelproto.test.Command", "_priority"), []string{"WithVariantField", "no field or oneof"}}, // synthetic
	} {
		t.Run(strings.Join(c.want, " "), func(t *testing.T) {
			reports := catchReports(t)

			reader, mp := newReader()
			h := otelproto.NewClientHandler(otelproto.WithMeterProvider(mp), nil, c.option)

			r := reports.all()
			if len(r) != 1 || !strings.HasPrefix(r[0], "otelproto: ") {
				t.Fatalf("reports: %q", r)
			}

			for _, w := range c.want {
				if !strings.Contains(r[0], w) {
					t.Errorf("report %q doesn't say %q", r[0], w)
				}
			}

			send(t.Context(), h, "/s/m", "a")()

			got := points(t, reader) // the default instead
			diff(t, "points", len(got), 2)
			diff(t, "bounds", got[0].Bounds, otelproto.DefaultBuckets())
		})
	}
}

func TestTheGlobalProviderIsTheDefault(t *testing.T) {
	before := otel.GetMeterProvider()
	defer otel.SetMeterProvider(before)

	reader, mp := newReader()
	otel.SetMeterProvider(mp)
	send(t.Context(), otelproto.NewClientHandler(), "/s/m", "a")()
	diff(t, "points", len(points(t, reader)), 2)
}

func TestDefaultBucketsAreTheDocumentedOnes(t *testing.T) {
	diff(t, "buckets", fmt.Sprint(otelproto.DefaultBuckets()),
		"[0 16 64 256 1024 4096 16384 65536 262144 1.048576e+06 4.194304e+06 1.6777216e+07 6.7108864e+07]")
}
