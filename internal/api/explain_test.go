package api_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/activityd/activityd/internal/api"
	"github.com/activityd/activityd/internal/auth"
	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/recent"
	"github.com/activityd/activityd/internal/testing/contactstest"
)

// everybodyMay lets every secret do all that the scope allows.
type everybodyMay auth.Scope

func (s everybodyMay) Check(string, auth.Scope) (auth.Caller, error) {
	return auth.Caller{Name: "test", Scopes: auth.Scope(s)}, nil
}

// fixedSet is an index with a single set.
type fixedSet []index.Entry

func (s fixedSet) Candidates(context.Context, member.ID) ([]index.Entry, error) {
	if s == nil {
		return nil, index.ErrMissing
	}
	return s, nil
}

type noHints struct{}

func (noHints) Refill(member.ID)               {}
func (noHints) LookAgain(member.ID, member.ID) {}

// theSite has viewer 12345 with contacts 11 to 13.
func theSite() *contactstest.Memory {
	m := contactstest.NewMemory()
	m.AddMember(12345, "me")
	for id, name := range map[member.ID]string{11: "ada", 12: "bob", 13: "eve"} {
		m.AddMember(id, name)
		m.SetContact(12345, id, false, false)
	}
	m.AddPhoto(1100, 11, "a", contacts.Public, 1000)
	m.AddPhoto(1200, 12, "b", contacts.Public, 900)
	m.SetLastUpload(11, 1000)
	m.SetLastUpload(12, 900)
	return m
}

// explain asks for an explanation with a token of the scope.
func explain(t *testing.T, scope auth.Scope, m *contactstest.Memory, set recent.Index) *httptest.ResponseRecorder {
	t.Helper()
	return ask(t, scope, m, set, "?explain=1")
}

// ask reads with a token of the scope.
func ask(t *testing.T, scope auth.Scope, m *contactstest.Memory, set recent.Index, query string) *httptest.ResponseRecorder {
	t.Helper()
	reader := recent.NewReader(set, m, noHints{}, recent.Options{Min: 2})
	b := setup(t, func(c *api.Config) { c.Auth = everybodyMay(scope) })
	b.reader.read, b.reader.explain = reader.Read, reader.Explain
	r := newRequest(t.Context(), http.MethodGet, readPath+query, http.NoBody)
	r.Header.Set("Authorization", "Bearer x")
	return b.do(t, r)
}

var times = regexp.MustCompile(`"ms":[0-9.e-]+`)

// explanation returns the part of the body that explains, without times.
func explanation(t *testing.T, w *httptest.ResponseRecorder) string {
	t.Helper()
	_, text, found := strings.Cut(w.Body.String(), `,"explain":`)
	if w.Code != http.StatusOK || !found {
		t.Fatalf("%d: %s", w.Code, w.Body)
	}
	return strings.TrimSuffix(times.ReplaceAllString(text, `"ms":0`), "}")
}

const goldenToViewer = `{"viewer_id":"12345","contact":{"id":"11","username":"ada","last_upload":1000},` +
	`"photos":[{"id":"1100","title":"a","date_upload":1000}]}`

// TestTheAnswerIsTheSameInAllWorldsThatLookTheSame: to the byte, and with all headers.
func TestTheAnswerIsTheSameInAllWorldsThatLookTheSame(t *testing.T) {
	t.Parallel()
	for name, world := range map[string]struct {
		change func(*contactstest.Memory)
		set    fixedSet
	}{
		"as it is": {func(*contactstest.Memory) {}, fixedSet{{Contact: 11, Score: 1000}, {Contact: 12, Score: 900}}},
		"a private upload of the loser": {func(m *contactstest.Memory) {
			m.AddPhoto(1201, 12, "p", contacts.Private, 5000)
			m.SetLastUpload(12, 5000)
		}, fixedSet{{Contact: 12, Score: 5000}, {Contact: 11, Score: 1000}}},
		"a private upload of a contact that shows nothing": {func(m *contactstest.Memory) {
			m.AddPhoto(1300, 13, "p", contacts.Private, 5000)
			m.SetLastUpload(13, 5000)
		}, fixedSet{{Contact: 13, Score: 5000}, {Contact: 11, Score: 1000}, {Contact: 12, Score: 900}}},
		"a block": {func(m *contactstest.Memory) {
			m.AddPhoto(1300, 13, "p", contacts.Public, 5000)
			m.SetLastUpload(13, 5000)
			m.Block(13, 12345)
		}, fixedSet{{Contact: 13, Score: 5000}, {Contact: 11, Score: 1000}, {Contact: 12, Score: 900}}},
		"grants":  {func(m *contactstest.Memory) { m.SetContact(12, 12345, true, true) }, fixedSet{{Contact: 11, Score: 1000}, {Contact: 12, Score: 900}}},
		"a ghost": {func(*contactstest.Memory) {}, fixedSet{{Contact: 99, Score: 9000}, {Contact: 11, Score: 1000}, {Contact: 12, Score: 900}}},
		"a walk":  {func(*contactstest.Memory) {}, fixedSet{{Contact: 99, Score: 9000}, {Contact: 98, Score: 8000}}},
		"no set":  {func(*contactstest.Memory) {}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := theSite()
			world.change(m)
			w := ask(t, auth.Read, m, world.set, "")
			if diff := cmp.Diff(goldenToViewer, w.Body.String()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			w.Header().Del("X-Request-ID")
			want := http.Header{"Cache-Control": {"no-store"}, "Content-Type": {"application/json"}, "X-Content-Type-Options": {"nosniff"}}
			if diff := cmp.Diff(want, w.Header()); diff != "" {
				t.Errorf("headers (-want +got):\n%s", diff)
			}
		})
	}
}

// TestLastUploadIsOfWhatTheViewerSees: a private upload does not show.
func TestLastUploadIsOfWhatTheViewerSees(t *testing.T) {
	t.Parallel()
	m := theSite()
	m.AddPhoto(1101, 11, "p", contacts.Private, 5000)
	m.SetLastUpload(11, 5000)
	w := ask(t, auth.Read, m, fixedSet{{Contact: 11, Score: 5000}, {Contact: 12, Score: 900}}, "")
	if !strings.Contains(w.Body.String(), `"contact":{"id":"11","username":"ada","last_upload":1000}`) || strings.Contains(w.Body.String(), "5000") {
		t.Errorf("body %s", w.Body)
	}
}

const goldenExplanation = `{"candidates":[` +
	`{"contact_id":"13","in_set":true,"broadcast":false,"score":5000,"verdict":"blocked",` +
	`"now":{"is_contact":true,"newest_visible":null,"is_member":true,"username":"eve","last_upload":5000,"blocks_viewer":true,"viewer_blocks":false,"grants_friend":true,"grants_family":false,` +
	`"newest_hidden":{"id":"1300","date_upload":5000,"visibility":"public"}}},` +
	`{"contact_id":"99","in_set":true,"broadcast":false,"score":2000,"verdict":"not a contact",` +
	`"now":{"is_contact":false,"newest_visible":null,"is_member":false,"username":"","last_upload":0,"blocks_viewer":false,"viewer_blocks":false,"grants_friend":false,"grants_family":false,` +
	`"newest_hidden":null}},` +
	`{"contact_id":"11","in_set":true,"broadcast":false,"score":1000,"newest_visible":{"id":"1100","date_upload":1000},"verdict":"chosen",` +
	`"now":{"is_contact":true,"newest_visible":{"id":"1100","date_upload":1000},"is_member":true,"username":"ada","last_upload":1000,"blocks_viewer":false,"viewer_blocks":false,"grants_friend":false,"grants_family":false,` +
	`"newest_hidden":null}},` +
	`{"contact_id":"12","in_set":true,"broadcast":false,"score":900,"newest_visible":{"id":"1200","date_upload":900},"verdict":"older",` +
	`"now":{"is_contact":true,"newest_visible":{"id":"1200","date_upload":900},"is_member":true,"username":"bob","last_upload":900,"blocks_viewer":false,"viewer_blocks":false,"grants_friend":false,"grants_family":false,` +
	`"newest_hidden":null}}],` +
	`"proof":"` + string(recent.ByLowest) + `","bound":900}`

func TestAnExplanationTellsEverything(t *testing.T) {
	t.Parallel()
	m := theSite()
	m.AddPhoto(1300, 13, "p", contacts.Public, 5000)
	m.SetLastUpload(13, 5000)
	m.SetContact(13, 12345, true, false)
	m.Block(13, 12345)
	set := fixedSet{{Contact: 13, Score: 5000}, {Contact: 99, Score: 2000}, {Contact: 11, Score: 1000}, {Contact: 12, Score: 900}}
	w := explain(t, auth.Admin, m, set)
	if diff := cmp.Diff(goldenExplanation, explanation(t, w)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if !strings.Contains(w.Body.String(), `"source":"index"`) {
		t.Errorf("body %s", w.Body)
	}
}

func TestNothingToShowIsExplained(t *testing.T) {
	t.Parallel()
	m := contactstest.NewMemory()
	m.AddMember(12345, "me")
	if got := explanation(t, explain(t, auth.Admin, m, fixedSet(nil))); !strings.HasPrefix(got, `{"candidates":[],"proof":"the walk `) {
		t.Errorf("got %s", got)
	}
}

// Explanations are for operators: further tokens are refused before anything is read.
func TestOnlyOperatorsGetExplanations(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *api.Config) { c.Auth = everybodyMay(auth.Read | auth.Write) })
	b.reader.explain = func(context.Context, contacts.Viewer, int) (recent.Answer, error) {
		t.Error("the reader was asked")
		return recent.Answer{}, nil
	}
	r := newRequest(t.Context(), http.MethodGet, readPath+"?explain=1", http.NoBody)
	r.Header.Set("Authorization", "Bearer x")
	w := b.do(t, r)
	wantProblem(t, w, http.StatusForbidden, "insufficient-scope")
	if got, want := w.Header().Get("WWW-Authenticate"), `Bearer realm="activityd", error="insufficient_scope", scope="admin"`; got != want {
		t.Errorf("WWW-Authenticate: %s, want %s", got, want)
	}
}
