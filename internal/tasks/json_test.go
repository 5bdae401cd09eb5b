package tasks_test

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/activityd/activityd/internal/strictjson"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/queue"
)

func TestParseLine(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		line string
		want queue.New
	}{
		{`{"type":"add_contact","user_id":"1","contact_id":2}`, tasks.NewAddContact(1, 2)},
		{` { "contact_id" : "2", "user_id":1,"type":"remove_contact"}`, tasks.NewRemoveContact(1, 2)},
		{"{\"type\":\"upload\",\"user_id\":18446744073709551615}\r\n", tasks.NewUpload(1<<64 - 1)},
	} {
		got, err := tasks.ParseLine([]byte(test.line))
		if diff := cmp.Diff(test.want, got); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", test.line, err, diff)
		}
	}
}

// A line is a task, and a fault of the whole is a fault of the line.
func TestParseLineNamesAllFaults(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		`{}`:                           "type user_id",
		`{"type":"upload"}`:            "user_id",
		`{"tasks":[]}`:                 "tasks type user_id",
		`[]`:                           "line",
		`7`:                            "line",
		`{"line":1}`:                   "line type user_id",
		`{"type":"x","user_id":"0"}`:   "type user_id",
		`{"type":"upload","type":"a"}`: "type",
	} {
		_, err := tasks.ParseLine([]byte(line))
		if got := strings.Join(fields(t, line, err), " "); got != want {
			t.Errorf("%s: fields %q, want %q", line, got, want)
		}
	}
}

// fields are those at fault, each of which stands in the error's text.
func fields(t *testing.T, text string, err error) (fields []string) {
	t.Helper()
	invalid, ok := errors.AsType[*strictjson.InvalidError](err)
	if !ok || len(invalid.Faults) == 0 {
		t.Fatalf("%s: error %v, want an InvalidError with faults", text, err)
	}
	for _, f := range invalid.Faults {
		fields = append(fields, f.Field)
		if !strings.Contains(err.Error(), f.Field+": "+f.Detail) {
			t.Errorf("%s: %q is not in %q", text, f.Detail, err)
		}
	}
	return fields
}

func TestParseRefusesWhatIsNoJSON(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", " ", "{", "upload", "{} {}", "\xff", `{"type":"upload","user_id":01}`} {
		_, line := tasks.ParseLine([]byte(text))
		_, body := tasks.ParseBody([]byte(text), 1)
		if !errors.Is(line, strictjson.ErrMalformed) || !errors.Is(body, strictjson.ErrMalformed) {
			t.Errorf("%q: %v, %v", text, line, body)
		}
	}
}

func TestParseBodyTakesOneTaskOrABatch(t *testing.T) {
	t.Parallel()
	one := `{"type":"upload","user_id":"7"}`
	for body, want := range map[string]int{one: 1, `{"tasks":[` + one + `]}`: 1, `{"tasks":[` + one + `,` + one + `]}`: 2} {
		got, err := tasks.ParseBody([]byte(body), 2)
		if diff := cmp.Diff(slices.Repeat([]queue.New{tasks.NewUpload(7)}, want), got); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", body, err, diff)
		}
	}
	_, err := tasks.ParseBody([]byte(`{"tasks":[`+one+`,`+one+`]}`), 1)
	if got := fields(t, "a batch too large", err); !slices.Equal(got, []string{"tasks"}) {
		t.Errorf("fields %q", got)
	}
}

// Whatever the text, a line that is taken is a task, and the same task as a body.
func FuzzParseLine(f *testing.F) {
	for _, seed := range []string{`{"type":"upload","user_id":"1"}`, `{"type":"add_contact","user_id":1,"contact_id":2}`, `{"":{}}`, `null`, "\xff"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		task, err := tasks.ParseLine([]byte(text))
		if err != nil {
			return
		}
		batch, err := tasks.ParseBody([]byte(text), 1)
		if err != nil || len(batch) != 1 || !reflect.DeepEqual(batch[0], task) || task.Key == 0 || task.DedupeKey == "" {
			t.Errorf("%q: as a line %v, as a body %v, %v", text, task, batch, err)
		}
	})
}
