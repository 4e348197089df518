package statshttp

import (
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// shapes are described once, under their name.
var shapes = map[reflect.Type]string{
	reflect.TypeFor[flow]():          "flow",
	reflect.TypeFor[flowShort]():     "traffic",
	reflect.TypeFor[sizeView]():      "sizes",
	reflect.TypeFor[socketView]():    "socket",
	reflect.TypeFor[messageRow]():    "message",
	reflect.TypeFor[connectionRow](): "connection",
	reflect.TypeFor[exemplarView]():  "exemplar",
}

// schema gives the path and the type of every field.
func schema() []string {
	all := inside("", reflect.TypeFor[view]())
	for t, name := range shapes {
		all = append(all, inside(name, t)...)
	}

	slices.Sort(all)

	return all
}

// inside gives the fields of a struct.
func inside(path string, t reflect.Type) []string {
	var all []string

	for f := range t.Fields() {
		if f.Anonymous {
			all = append(all, inside(path, f.Type)...)
		} else {
			all = append(all, fields(strings.TrimPrefix(path+"."+f.Tag.Get("json"), "."), f.Type)...)
		}
	}

	return all
}

func fields(path string, t reflect.Type) []string {
	switch {
	case t == reflect.TypeFor[time.Time]():
		return []string{path + " time"}
	case t.Kind() == reflect.Pointer && shapes[t.Elem()] != "":
		return []string{path + " " + shapes[t.Elem()] + " or null"}
	case shapes[t] != "":
		return []string{path + " " + shapes[t]}
	case t.Kind() == reflect.Slice:
		return fields(path+"[]", t.Elem())
	case t.Kind() == reflect.Struct:
		return inside(path, t)
	case t.Kind() == reflect.String:
		return []string{path + " string"}
	case t.Kind() == reflect.Float64:
		return []string{path + " number"}
	case t.Kind() == reflect.Interface:
		return []string{path + " string, number or boolean"}
	default:
		return []string{path + " integer"}
	}
}

// TestTheSchemaIsDocumented compares the tables in the documentation with the fields that are sent.
func TestTheSchemaIsDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/debug-page.md")
	if err != nil {
		t.Fatal(err)
	}

	var documented []string

	row := regexp.MustCompile("(?m)^\\| `([a-z0-9_.\\[\\]]+)` \\| ([a-z, ]+) \\| [^|]+ \\|$")
	for _, m := range row.FindAllStringSubmatch(string(text), -1) {
		documented = append(documented, m[1]+" "+m[2])
	}

	slices.Sort(documented)

	if diff := cmp.Diff(documented, schema()); diff != "" {
		t.Errorf("docs/debug-page.md (-) and the page (+) differ:\n%s", diff)
	}
}

func TestTheParametersAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/debug-page.md")
	if err != nil {
		t.Fatal(err)
	}

	for name, p := range parameters() {
		if !strings.Contains(string(text), "\n`"+name+"` | "+p.expected+" |") {
			t.Errorf("docs/debug-page.md lacks the row `%s` | %s |", name, p.expected)
		}
	}
}
