package api_test

import (
	"context"
	"errors"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/recent"
)

const (
	readPath = "/v1/users/12345/recent-contact-photos"

	goldenAnswer = `{"viewer_id":"12345",` +
		`"contact":{"id":"98765","username":"Zoë \u003cz\u003e","last_upload":1363665432},` +
		`"photos":[{"id":"18446744073709551615","title":"Über allen Gipfeln","date_upload":1363665432},` +
		`{"id":"7","title":"","date_upload":1363665000}],"source":"index"`
)

// goodAnswer is the answer of the golden texts.
func goodAnswer() recent.Answer {
	return recent.Answer{
		Album: contacts.Album{
			Contact: &contacts.Profile{ID: 98765, Username: "Zoë <z>"},
			Photos: []contacts.Photo{
				{ID: math.MaxUint64, Title: "Über allen Gipfeln", DateUpload: 1363665432},
				{ID: 7, DateUpload: 1363665000},
			},
		},
		Source: recent.FromIndex,
		Trace: recent.Trace{
			Candidates: []recent.Candidate{
				{Contact: 98765, Score: 1363665432, Newest: contacts.Photo{ID: math.MaxUint64, DateUpload: 1363665432}, Verdict: recent.Chosen},
				{Contact: 4, Score: 1363660000, Verdict: recent.NotLooked},
			},
		},
	}
}

func TestReadGolden(t *testing.T) {
	t.Parallel()
	walk := recent.Answer{Source: recent.FromDatabase, Trace: recent.Trace{WalkReason: "the set is missing"}}
	for name, test := range map[string]struct {
		query  string
		answer recent.Answer
		want   string
	}{
		"an answer":            {"", goodAnswer(), goldenAnswer + `}`},
		"not explained":        {"?explain=0", goodAnswer(), goldenAnswer + `}`},
		"nothing to show":      {"", recent.Answer{Source: recent.FromIndex}, `{"viewer_id":"12345","contact":null,"photos":[],"source":"index"}`},
		"nothing, by the walk": {"", walk, `{"viewer_id":"12345","contact":null,"photos":[],"source":"database"}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.reader.read = func(context.Context, contacts.Viewer, int) (recent.Answer, error) { return test.answer, nil }
			w := b.get(t, readPath+test.query)
			if w.Code != http.StatusOK || w.Body.String() != test.want {
				t.Errorf("%d\n got %s\nwant %s", w.Code, w.Body, test.want)
			}
		})
	}
}

func TestReadPassesViewerAndLimitOn(t *testing.T) {
	t.Parallel()
	for query, want := range map[string]int{"": 10, "?limit=1": 1, "?limit=50": 50, "?explain=1": 10} {
		b := setup(t)
		var viewer contacts.Viewer
		var limit int
		b.reader.read = func(_ context.Context, v contacts.Viewer, n int) (recent.Answer, error) {
			viewer, limit = v, n
			return recent.Answer{Source: recent.FromIndex}, nil
		}
		b.get(t, readPath+query)
		if viewer.ID != 12345 || limit != want {
			t.Errorf("%q: asked for %d photos for %s, want %d for 12345", query, limit, viewer.ID, want)
		}
	}
}

func TestReadRefusesBadInput(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		id, query string
		fields    []string
	}{
		"a letter":           {"1a", "", []string{"id"}},
		"no id":              {"", "", []string{"id"}},
		"zero":               {"0", "", []string{"id"}},
		"two to the 64th":    {"18446744073709551616", "", []string{"id"}},
		"negative":           {"-1", "", []string{"id"}},
		"leading zero":       {"01", "", []string{"id"}},
		"escaped slash":      {"1%2F2", "", []string{"id"}},
		"very long":          {strings.Repeat("9", 2000), "", []string{"id"}},
		"limit 0":            {"1", "limit=0", []string{"limit"}},
		"limit 51":           {"1", "limit=51", []string{"limit"}},
		"limit negative":     {"1", "limit=-1", []string{"limit"}},
		"limit empty":        {"1", "limit=", []string{"limit"}},
		"limit letter":       {"1", "limit=x", []string{"limit"}},
		"limit signed":       {"1", "limit=%2B5", []string{"limit"}},
		"limit padded":       {"1", "limit=05", []string{"limit"}},
		"limit fraction":     {"1", "limit=1.5", []string{"limit"}},
		"limit huge":         {"1", "limit=99999999999999999999", []string{"limit"}},
		"limit twice":        {"1", "limit=5&limit=5", []string{"limit"}},
		"explain word":       {"1", "explain=true", []string{"explain"}},
		"explain empty":      {"1", "explain=", []string{"explain"}},
		"unknown parameter":  {"1", "limt=5", []string{"limt"}},
		"wrong case":         {"1", "Limit=5", []string{"Limit"}},
		"unreadable query":   {"1", "limit=%zz", []string{"query"}},
		"semicolon":          {"1", "limit=5;explain=1", []string{"query"}},
		"everything at once": {"x", "limit=0&explain=2&b=1&a=1", []string{"id", "a", "b", "limit", "explain"}},
		"forty strangers":    {"1", strings.Repeat("a=1&", 1) + manyParameters(40), nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.reader.read = func(context.Context, contacts.Viewer, int) (recent.Answer, error) {
				t.Error("the reader was asked")
				return recent.Answer{}, errors.New("not reached")
			}
			w := b.get(t, "/v1/users/"+test.id+"/recent-contact-photos?"+test.query)
			p := wantProblem(t, w, http.StatusBadRequest, "invalid-parameter")
			if test.fields == nil && len(p.Errors) == 20 {
				return
			}
			if !slices.Equal(p.fields(), test.fields) || p.Field != test.fields[0] {
				t.Errorf("fields = %q, first %q, want %q", p.fields(), p.Field, test.fields)
			}
			if w.Body.Len() > 1500 || !strings.Contains(p.Detail, test.fields[0]) {
				t.Errorf("%d bytes, detail = %q", w.Body.Len(), p.Detail)
			}
		})
	}
}

func manyParameters(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString("p" + strings.Repeat("x", i) + "=1&")
	}
	return b.String()
}
