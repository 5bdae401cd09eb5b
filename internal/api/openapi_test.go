package api_test

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/legacy"
	"github.com/google/go-cmp/cmp"

	"github.com/activityd/activityd/internal/api"
)

// contract is the OpenAPI document as the server serves it.
type contract struct {
	doc    *openapi3.T
	router routers.Router
}

var loadContract = sync.OnceValues(func() (contract, error) {
	openapi3filter.RegisterBodyDecoder("text/javascript", openapi3filter.FileBodyDecoder)
	s := api.New(api.Config{
		Reader: &fakeReader{}, Enqueuer: &fakeEnqueuer{}, Health: healthy,
		Logger: slog.New(slog.DiscardHandler),
	})
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/openapi.yaml", http.NoBody))
	doc, err := openapi3.NewLoader().LoadFromData(w.Body.Bytes())
	if err != nil {
		return contract{}, err
	}
	router, err := legacy.NewRouter(doc) // validates the document
	return contract{doc, router}, err
})

func theContract(t testing.TB) contract {
	t.Helper()
	c, err := loadContract()
	if err != nil {
		t.Fatalf("openapi.yaml: %v", err)
	}
	return c
}

// conforms fails the test when the document does not foresee the response.
func conforms(t testing.TB, r *http.Request, w *httptest.ResponseRecorder) {
	t.Helper()
	c := theContract(t)
	if r.Method == http.MethodHead { // as GET
		r = r.Clone(r.Context())
		r.Method = http.MethodGet
	}
	route, params, err := c.router.FindRoute(r)
	if err != nil { // no such path or method: a problem as everywhere
		var body any
		if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil {
			t.Fatalf("%s %s: %d: %v", r.Method, r.URL, w.Code, err)
		}
		if err := c.doc.Components.Schemas["Problem"].Value.VisitJSON(body); err != nil {
			t.Errorf("%s %s: %d %s: %v", r.Method, r.URL, w.Code, w.Body, err)
		}
		return
	}
	err = openapi3filter.ValidateResponse(t.Context(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{Request: r, PathParams: params, Route: route},
		Status:                 w.Code,
		Header:                 w.Header(),
		Body:                   io.NopCloser(bytes.NewReader(w.Body.Bytes())),
		Options:                &openapi3filter.Options{IncludeResponseStatus: true},
	})
	if err != nil {
		t.Errorf("%s %s: %d %s: %v", r.Method, r.URL, w.Code, w.Body, err)
	}
}

// foreseen fails the test when the document does not allow the request.
func foreseen(t testing.TB, r *http.Request) {
	t.Helper()
	route, params, err := theContract(t).router.FindRoute(r)
	if err != nil {
		t.Fatal(err)
	}
	in := &openapi3filter.RequestValidationInput{
		Request: r, PathParams: params, Route: route,
		Options: &openapi3filter.Options{AuthenticationFunc: openapi3filter.NoopAuthenticationFunc}, // access_test.go is about that
	}
	if err := openapi3filter.ValidateRequest(t.Context(), in); err != nil {
		t.Errorf("%s %s: %v", r.Method, r.URL, err)
	}
}

func TestEveryRouteIsDocumentedAndViceVersa(t *testing.T) {
	t.Parallel()
	var documented, registered []string
	for path, item := range theContract(t).doc.Paths.Map() {
		for method := range item.Operations() {
			documented = append(documented, method+" "+path)
		}
	}
	for _, r := range setup(t).server.Routes() {
		registered = append(registered, r.Method+" "+strings.NewReplacer(":id", "{id}", ":device", "{device}", ":queue", "{queue}").Replace(r.Path))
	}
	slices.Sort(documented)
	slices.Sort(registered)
	if diff := cmp.Diff(documented, registered); diff != "" {
		t.Errorf("documented (-), registered (+):\n%s", diff)
	}
}

func TestEveryProblemTypeIsDocumentedAndViceVersa(t *testing.T) {
	t.Parallel()
	schema := theContract(t).doc.Components.Schemas["Problem"].Value.Properties["type"].Value
	var documented []string
	for _, v := range schema.Enum {
		documented = append(documented, v.(string))
		if !strings.Contains(schema.Description, "`"+strings.TrimPrefix(v.(string), "/problems/")+"`") {
			t.Errorf("%s is not described", v)
		}
	}
	known := api.ProblemTypes()
	slices.Sort(documented)
	slices.Sort(known)
	if diff := cmp.Diff(documented, known); diff != "" {
		t.Errorf("documented (-), in use (+):\n%s", diff)
	}
}

// The check itself must be able to fail.
func TestConformsSeesDeviations(t *testing.T) {
	t.Parallel()
	good := `{"viewer_id":"1","contact":null,"photos":[],"source":"index"}`
	for name, deviate := range map[string]func(w *httptest.ResponseRecorder, body string){
		"status": func(w *httptest.ResponseRecorder, body string) { write(w, http.StatusTeapot, body) },
		"header": func(w *httptest.ResponseRecorder, body string) { w.Header().Del("Cache-Control"); write(w, 200, body) },
		"field": func(w *httptest.ResponseRecorder, body string) {
			write(w, 200, strings.Replace(body, "source", "from", 1))
		},
		"numbers": func(w *httptest.ResponseRecorder, body string) { write(w, 200, strings.Replace(body, `"1"`, "1", 1)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := httptest.NewRecorder()
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("X-Request-ID", "a")
			w.Header().Set("Cache-Control", "no-store")
			r := httptest.NewRequest(http.MethodGet, "/v1/users/1/recent-contact-photos", http.NoBody)
			deviate(w, good)
			witness := &failures{TB: t}
			conforms(witness, r, w)
			if !witness.failed {
				t.Error("not seen")
			}
		})
	}
}

func write(w *httptest.ResponseRecorder, status int, body string) {
	w.WriteHeader(status)
	_, _ = w.WriteString(body)
}

// failures is a testing.TB that only notes that a test would have failed.
type failures struct {
	testing.TB
	failed bool
}

func (f *failures) Errorf(string, ...any) { f.failed = true }
