package api_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/activityd/activityd/internal/api"
	"github.com/activityd/activityd/internal/auth"
	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/recent"
)

// hidingWorlds are two sites that look the same to viewer 12345. In the second one a
// contact who blocks the viewer uploaded in private and so pushed contact 12 out of
// the set, so that the index can prove nothing.
func hidingWorlds() map[recent.Source]*recent.Reader {
	quiet, hiding := theSite(), theSite()
	hiding.AddPhoto(1300, 13, "p", contacts.Private, 5000)
	hiding.SetLastUpload(13, 5000)
	hiding.Block(13, 12345)
	options := recent.Options{Min: 2}
	return map[recent.Source]*recent.Reader{
		recent.FromIndex:    recent.NewReader(fixedSet{{Contact: 11, Score: 1000}, {Contact: 12, Score: 900}}, quiet, noHints{}, options),
		recent.FromDatabase: recent.NewReader(fixedSet{{Contact: 13, Score: 5000}, {Contact: 11, Score: 1000}}, hiding, noHints{}, options),
	}
}

// TestWhoIsToldHowAnAnswerWasFound: operators and, without tokens, this machine,
// unless a proxy asks for a client elsewhere.
func TestWhoIsToldHowAnAnswerWasFound(t *testing.T) {
	t.Parallel()
	local := auth.Scope(0) // there are no tokens
	for _, test := range []struct {
		scope  auth.Scope
		from   string
		header string // set by a proxy, if any
		want   bool
	}{
		{auth.Admin, "192.0.2.1:50000", "", true},
		{auth.Admin, "192.0.2.1:50000", "X-Forwarded-For", true},
		{auth.Read, "127.0.0.1:50000", "", false},
		{auth.Read | auth.Write, "127.0.0.1:50000", "", false},
		{local, "127.0.0.1:50000", "", true},
		{local, "127.8.8.8:50000", "", true},
		{local, "[::1]:50000", "", true},
		{local, "[::ffff:127.0.0.1]:50000", "", true},
		{local, "127.0.0.1:50000", "Forwarded", false},
		{local, "127.0.0.1:50000", "X-Forwarded-For", false},
		{local, "127.0.0.1:50000", "X-Real-IP", false},
		{local, "127.0.0.1:50000", "Via", false},
		{local, "192.0.2.1:50000", "", false},
		{local, "192.0.2.1:50000", "X-Real-IP", false},
		{local, "[2001:db8::1]:50000", "", false},
		{local, "", "", false},
		{local, "@", "", false},
		{local, "localhost:1", "", false},
	} {
		for source, reader := range hidingWorlds() {
			b := setup(t, func(c *api.Config) {
				if test.scope != local {
					c.Auth = everybodyMay(test.scope)
				}
			})
			b.reader.read, b.reader.explain = reader.Read, reader.Explain
			do := func(query string) *httptest.ResponseRecorder {
				r := newRequest(t.Context(), http.MethodGet, readPath+query, http.NoBody)
				r.RemoteAddr = test.from
				r.Header.Set("Authorization", "Bearer x")
				if test.header != "" {
					r.Header.Set(test.header, "127.0.0.1")
				}
				return b.do(t, r)
			}
			if w := do("?explain=1"); (w.Code == http.StatusOK) != test.want || (w.Code == http.StatusForbidden) == test.want {
				t.Errorf("%+v: explained with %d, %s", test, w.Code, w.Body)
			}
			w := do("")
			told := strings.Contains(w.Body.String(), `,"source":"`+string(source)+`"}`)
			if w.Code != http.StatusOK || told != test.want || strings.Contains(w.Body.String(), "source") != test.want {
				t.Errorf("%+v: %d, %s", test, w.Code, w.Body)
			}
		}
	}
}
