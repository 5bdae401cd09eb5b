package strictjson_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/activityd/activityd/internal/strictjson"
)

func TestParse(t *testing.T) {
	t.Parallel()
	if got, err := strictjson.Parse([]byte(" \r\n{ \"a\": 1 }\t")); err != nil || string(got) != `{ "a": 1 }` {
		t.Errorf("%q, %v", got, err)
	}
	for _, text := range []string{"", " ", "{", "{}{}", "nul", "\xff", "01", "\ufeff{}"} {
		if _, err := strictjson.Parse([]byte(text)); !errors.Is(err, strictjson.ErrMalformed) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// The faults of all fields are named, each by its place, as often as it has one.
func TestFields(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"s":"a","b":true,"n":5,"m":"7"}`:      "",
		`{}`:                                    "p.s p.m",
		`{"s":null,"b":null,"n":null,"m":null}`: "p.s p.b p.n p.m",
		`{"s":1,"b":0,"n":"5","m":"07"}`:        "p.s p.b p.n p.m",
		`{"s":"a","n":0,"m":-7}`:                "p.n p.m",
		`{"s":"a","n":10,"m":7.0}`:              "p.n p.m",
		`{"s":"a","n":5e0,"m":7,"S":"a","":0}`:  "p.S p p.n",
		`{"s":"a","s":"a","m":7}`:               "p.s",
		`["s"]`:                                 "p",
	} {
		r := &strictjson.Reader{Root: "body"}
		if o, ok := r.Object("p", json.RawMessage(text)); ok {
			o.Only("s", "b", "n", "m")
			o.Need("s", "a text")
			s, isText := o.String("s", "a text")
			is, isBool := o.Bool("b")
			n, isWhole := o.Whole("n", 1, 9)
			m := o.MemberID("m", true)
			if want == "" && (s != "a" || !isText || !is || !isBool || n != 5 || !isWhole || m != 7) {
				t.Errorf("%s: read %q, %v, %d, %d", text, s, is, n, m)
			}
		}
		if got := fields(r); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

func fields(r *strictjson.Reader) string {
	var list []string
	for _, f := range r.Faults {
		list = append(list, f.Field)
	}
	return strings.Join(list, " ")
}

func TestArrays(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`[1,{}]`: "", `[]`: "holds 0 things: want 1 to 2", `[1,2,3]`: "holds 3 things: want at most 2",
		`{}`: "want an array of things, got an object", `null`: "want an array of things, got null",
	} {
		r := &strictjson.Reader{Root: "body"}
		items, ok := r.Array("", json.RawMessage(text), "things", 1, 2)
		if want == "" {
			if !ok || len(items) != 2 || len(r.Faults) > 0 {
				t.Errorf("%s: %q, %v", text, items, r.Faults)
			}
			continue
		}
		if ok || len(r.Faults) != 1 || r.Faults[0].Detail != want || r.Faults[0].Field != "body" {
			t.Errorf("%s: %v, want %q", text, r.Faults, want)
		}
	}
}

func TestHostileInputFillsNoAnswer(t *testing.T) {
	t.Parallel()
	r := &strictjson.Reader{Root: "body"}
	text := `{"` + strings.Repeat("é", 500) + `":1` + strings.Repeat(`,"a":1`, 500) + `}`
	if o, ok := r.Object("", json.RawMessage(text)); ok {
		o.Only("b")
	}
	if err := r.Err(); len(r.Faults) != 20 || err == nil || len(err.Error()) > 5000 {
		t.Errorf("%d faults: %v", len(r.Faults), err)
	}
}

func TestList(t *testing.T) {
	t.Parallel()
	for want, list := range map[string][]string{"": nil, "a": {"a"}, "a or b": {"a", "b"}, "a, b or c": {"a", "b", "c"}} {
		if got := strictjson.List(list, "or"); got != want {
			t.Errorf("%v: %q, want %q", list, got, want)
		}
	}
}
