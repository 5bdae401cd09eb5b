package api

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
)

// How many photos a read may ask for.
const (
	defaultLimit = 10
	maxLimit     = 50
)

// readQuery is the input of a read.
type readQuery struct {
	viewer  contacts.Viewer
	limit   int
	explain bool
}

func (s *Server) recentContactPhotos(c echo.Context) error {
	q, err := parseReadQuery(c.Param("id"), c.QueryString())
	if err != nil {
		return err
	}
	start := time.Now()
	answer, err := s.cfg.Reader.Read(c.Request().Context(), q.viewer, q.limit)
	if err != nil {
		return fmt.Errorf("reading for viewer %s: %w", q.viewer.ID, err)
	}
	body := newAnswer(q.viewer, answer)
	if s.isToldHow(c) {
		body.Source = answer.Source
		c.Response().Header().Set("Server-Timing", serverTiming(answer.Trace.Steps, time.Since(start)))
	}
	if q.explain {
		if body.Explain, err = explained(c.Request().Context(), answer, isOperator(c)); err != nil {
			return err
		}
	}
	return writeJSON(c, http.StatusOK, typeJSON, body)
}

// parseReadQuery reads the path's id and the query, and names all faults.
func parseReadQuery(id, rawQuery string) (readQuery, error) {
	q := readQuery{limit: defaultLimit}
	var f faults
	var err error
	if q.viewer.ID, err = member.Parse(id); err != nil {
		f.addf("id", "%v", err)
	}
	values := f.query(rawQuery, "limit", "explain")
	if limit, given := values["limit"]; given {
		q.limit = f.limit(limit)
	}
	q.explain = values["explain"] == "1"
	if explain, given := values["explain"]; given && explain != "0" && explain != "1" {
		f.addf("explain", "%q: want 0 or 1", clip(explain))
	}
	if len(f) > 0 {
		return readQuery{}, refuseFields(invalidParameter, f)
	}
	return q, nil
}

// limit takes only the plain spelling of a number.
func (f *faults) limit(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil || strconv.Itoa(n) != s || n < 1 || n > maxLimit {
		f.addf("limit", "%q: want a whole number from 1 to %d", clip(s), maxLimit)
	}
	return n
}

// query reads a query in which each of the known parameters may stand once and
// nothing else may stand at all.
func (f *faults) query(raw string, known ...string) map[string]string {
	parsed, err := url.ParseQuery(raw)
	if err != nil {
		f.addf("query", "cannot be read: %s", clip(err.Error()))
		return nil
	}
	values := make(map[string]string, len(known))
	for _, name := range slices.Sorted(maps.Keys(parsed)) {
		switch {
		case !slices.Contains(known, name):
			f.addf(name, "unknown parameter")
		case len(parsed[name]) > 1:
			f.addf(name, "given more than once")
		default:
			values[name] = parsed[name][0]
		}
	}
	return values
}
