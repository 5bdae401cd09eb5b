package api

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"

	"github.com/activityd/activityd/internal/auth"
	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/strictjson"
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

func (s *Server) recentContactPhotos(c *call) (any, error) {
	q, err := parseReadQuery(c.Param("id"), c.QueryString())
	if err != nil {
		return nil, err
	}
	operator := s.isOperator(c)
	if q.explain && !operator {
		return nil, scopeProblem("explain=1 is for tokens with the scope admin or, where there are no tokens, for clients on the server's machine", auth.Admin)
	}
	read := s.cfg.Reader.Read
	if q.explain {
		read = s.cfg.Reader.Explain
	}
	a, err := read(c.Request().Context(), q.viewer, q.limit)
	if err != nil {
		return nil, fmt.Errorf("reading for viewer %s: %w", q.viewer.ID, err)
	}
	body := newAnswer(q.viewer, a)
	if q.explain {
		body = Explained(q.viewer, a)
	}
	if operator {
		body.Source = a.Source
		if behind := s.cfg.Behind(); behind != nil {
			body.SetBehind(behind.Longest)
		}
	}
	return body, nil
}

// parseReadQuery reads the path's id and the query, and names all faults.
func parseReadQuery(id, rawQuery string) (readQuery, error) {
	var q readQuery
	var f strictjson.Faults
	var err error
	if q.viewer.ID, err = member.Parse(id); err != nil {
		f.Addf("id", "%v", err)
	}
	values := parseQuery(rawQuery, &f, "limit", "explain")
	q.limit = readLimit(values, &f)
	if s, given := values["explain"]; given {
		if q.explain = s == "1"; !q.explain && s != "0" {
			f.Addf("explain", "%q: want 0 or 1", strictjson.Clip(s))
		}
	}
	if len(f) > 0 {
		return readQuery{}, invalidParameter.fields(f)
	}
	return q, nil
}

// readLimit reads how many photos are asked for.
func readLimit(values map[string]string, f *strictjson.Faults) int {
	s, given := values["limit"]
	if !given {
		return defaultPhotos
	}
	limit, err := strconv.Atoi(s)
	if err != nil || strconv.Itoa(limit) != s || limit < 1 || limit > MaxPhotos { // only the plain spelling
		f.Addf("limit", "%q: want a whole number from 1 to %d", strictjson.Clip(s), MaxPhotos)
	}
	return limit
}

// parseQuery reads a query that may have each of the known parameters once and no
// more. It adds the faults to f.
func parseQuery(raw string, f *strictjson.Faults, known ...string) map[string]string {
	if raw == "" {
		return nil
	}
	parsed, err := url.ParseQuery(raw)
	if err != nil {
		f.Addf("query", "cannot be read: %s", strictjson.Clip(err.Error()))
		return nil
	}
	values := make(map[string]string, len(known))
	for _, name := range slices.Sorted(maps.Keys(parsed)) {
		switch {
		case !slices.Contains(known, name):
			f.Addf(name, "unknown parameter")
		case len(parsed[name]) > 1:
			f.Addf(name, "given more than once")
		default:
			values[name] = parsed[name][0]
		}
	}
	return values
}
