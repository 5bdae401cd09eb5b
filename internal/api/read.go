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

	"github.com/activityd/activityd/internal/auth"
	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/recent"
)

// MaxPhotos is how many photos a read may ask for.
const MaxPhotos = 50

const defaultPhotos = 10

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
	operator := s.isOperator(c)
	if q.explain && !operator {
		return refuseScope("explain=1 is for tokens with the scope admin or, where there are no tokens, for clients on the server's machine", auth.Admin)
	}
	var e recent.Explanation
	start := time.Now()
	if q.explain {
		e, err = s.cfg.Reader.Explain(c.Request().Context(), q.viewer, q.limit)
	} else {
		e.Answer, err = s.cfg.Reader.Read(c.Request().Context(), q.viewer, q.limit)
	}
	if err != nil {
		return fmt.Errorf("reading for viewer %s: %w", q.viewer.ID, err)
	}
	body := newAnswer(q.viewer, e.Answer)
	if q.explain {
		body = Explained(q.viewer, e)
	}
	if operator {
		body.Source = e.Source
		c.Response().Header().Set("Server-Timing", serverTiming(e.Trace.Steps, time.Since(start)))
	}
	return writeJSON(c, http.StatusOK, typeJSON, body)
}

// parseReadQuery reads the path's id and the query, and names all faults.
func parseReadQuery(id, rawQuery string) (readQuery, error) {
	q := readQuery{limit: defaultPhotos}
	var f faults
	var err error
	if q.viewer.ID, err = member.Parse(id); err != nil {
		f.addf("id", "%v", err)
	}
	values := f.query(rawQuery, "limit", "explain")
	if s, given := values["limit"]; given {
		q.limit, err = strconv.Atoi(s)
		if err != nil || strconv.Itoa(q.limit) != s || q.limit < 1 || q.limit > MaxPhotos { // only the plain spelling
			f.addf("limit", "%q: want a whole number from 1 to %d", clip(s), MaxPhotos)
		}
	}
	if s, given := values["explain"]; given {
		if q.explain = s == "1"; !q.explain && s != "0" {
			f.addf("explain", "%q: want 0 or 1", clip(s))
		}
	}
	if len(f) > 0 {
		return readQuery{}, refuseFields(invalidParameter, f)
	}
	return q, nil
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
