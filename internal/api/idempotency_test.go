package api_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

const oneUpload = `{"type":"upload","user_id":"1"}`

// postWith sends a body under the given keys.
func (b *bundle) postWith(t *testing.T, body string, keys ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := postTasks(t.Context(), strings.NewReader(body))
	r.Header["Idempotency-Key"] = keys
	return b.do(t, r)
}

func TestARepeatedKeyIsAnsweredAsTheFirstTime(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for i, form := range []string{`8e03978e-40d5`, `8e03978e-40d5`, `"8e03978e-40d5"`} {
		w := b.postWith(t, oneUpload, form)
		replayed := w.Header().Get("Idempotency-Replayed")
		if w.Code != http.StatusAccepted || w.Body.String() != `{"tasks":[{"id":"1"}]}` || (replayed == "true") != (i > 0) {
			t.Errorf("time %d: %d %s, replayed %q", i+1, w.Code, w.Body, replayed)
		}
	}
	if got := b.enqueuer.calls(); len(got) != 1 {
		t.Errorf("enqueued %d times", len(got))
	}
	p := wantProblem(t, b.postWith(t, `{"type":"upload","user_id":"2"}`, "8e03978e-40d5"), http.StatusUnprocessableEntity, "idempotency-key-reused")
	if p.Field != "Idempotency-Key" {
		t.Errorf("field %q", p.Field)
	}
	if w := b.postWith(t, oneUpload); w.Code != http.StatusAccepted || w.Header().Get("Idempotency-Replayed") != "" {
		t.Errorf("without a key: %d, replayed %q", w.Code, w.Header().Get("Idempotency-Replayed"))
	}
}

func TestIdempotencyKeys(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		given []string
		key   string // "" when it is refused
	}{
		{[]string{"a"}, "a"},
		{[]string{"!~"}, "!~"},
		{[]string{`"a"`}, "a"},
		{[]string{`a"b`}, ""},
		{[]string{`"a\\b"`}, ""},
		{[]string{strings.Repeat("k", 255)}, strings.Repeat("k", 255)},
		{[]string{`"` + strings.Repeat("k", 255) + `"`}, strings.Repeat("k", 255)},
		{[]string{strings.Repeat("k", 256)}, ""},
		{[]string{`"` + strings.Repeat("k", 256) + `"`}, ""},
		{[]string{""}, ""},
		{[]string{`""`}, ""},
		{[]string{`"`}, ""},
		{[]string{`"a`}, ""},
		{[]string{`"a"b"`}, ""},
		{[]string{`"a"; p=1`}, ""},
		{[]string{`"a\"`}, ""},
		{[]string{`"a\n"`}, ""},
		{[]string{"a b"}, ""},
		{[]string{`"a b"`}, ""},
		{[]string{"a\tb"}, ""},
		{[]string{"caf\u00e9"}, ""},
		{[]string{"a\x7f"}, ""},
		{[]string{"a", "a"}, ""},
	} {
		b := setup(t)
		w := b.postWith(t, oneUpload, test.given...)
		if test.key != "" {
			if _, known := b.enqueuer.once[test.key]; w.Code != http.StatusAccepted || !known {
				t.Errorf("%q: %d %s, keys %v", test.given, w.Code, w.Body, b.enqueuer.once)
			}
			continue
		}
		if p := wantProblem(t, w, http.StatusBadRequest, "invalid-parameter"); p.Field != "Idempotency-Key" || len(b.enqueuer.calls()) > 0 {
			t.Errorf("%q: field %q, enqueued %v", test.given, p.Field, b.enqueuer.calls())
		}
	}
}
