package api

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/strictjson"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/queue"
)

type idJSON struct {
	ID string `json:"id"`
}

// enqueueTasks takes all tasks of a request or none, and answers after the commit. A
// client may repeat a request whose answer it missed: tasks are hints to look again.
// With an Idempotency-Key a repetition enqueues nothing.
func (s *Server) enqueueTasks(c *call) (any, error) {
	ids, err := s.enqueue(c, func(body []byte, _ string) ([]queue.New, error) {
		batch, err := tasks.ParseBody(body, s.cfg.MaxBatch)
		if s.cfg.Push == nil && slices.ContainsFunc(batch, func(n queue.New) bool { return n.Kind == push.Notify }) {
			return nil, errPushOff
		}
		return batch, refused(err, invalidTask)
	})
	return list("tasks", ids, func(id uint64) idJSON { return idJSON{strconv.FormatUint(id, 10)} }), err
}

// enqueue enqueues the tasks of a request, as parse reads its body; key is that of
// the request, of its caller, or "". The query may have the parameters that are known.
func (s *Server) enqueue(c *call, parse func(body []byte, key string) ([]queue.New, error)) ([]uint64, error) {
	var f strictjson.Faults
	parseQuery(c.QueryString(), &f)
	key := idempotencyKey(c.Request().Header, &f)
	if len(f) > 0 {
		return nil, invalidParameter.fields(f)
	}
	if err := s.checkLoad(0); err != nil { // before the body is read
		return nil, err
	}
	if name := c.access.caller.Name; name != "" && key != "" {
		key = name + "\x00" + key // keys of two callers are different; no name has a NUL in it
	}
	body, err := s.readJSON(c)
	if err != nil {
		return nil, err
	}
	batch, err := parse(body, key)
	if err != nil {
		return nil, err
	}
	if err := s.checkLoad(len(batch)); err != nil {
		return nil, err
	}
	var ids []uint64
	var replayed bool
	if ctx := c.Request().Context(); key == "" {
		ids, err = s.cfg.Enqueuer.Enqueue(ctx, batch)
	} else {
		ids, replayed, err = s.cfg.Enqueuer.EnqueueOnce(ctx, key, batch)
	}
	if err != nil {
		return nil, fmt.Errorf("enqueuing %d tasks: %w", len(batch), err)
	}
	if len(ids) != len(batch) {
		return nil, fmt.Errorf("%d tasks were enqueued under %d ids", len(batch), len(ids))
	}
	if c.status = http.StatusAccepted; replayed {
		c.Response().Header().Set("Idempotency-Replayed", "true")
	}
	return ids, nil
}

// checkLoad returns the problem if n more tasks would be too many.
func (s *Server) checkLoad(n int) error {
	if !s.cfg.Overloaded(n) {
		return nil
	}
	enqueuesRefused.Inc()
	p := tooManyWaiting.problem("more tasks wait than the workers get done; nothing was enqueued, send the same again later")
	p.retryAfter = 5
	return p
}

// refused returns the problem for a body that cannot be taken.
func refused(err error, invalid kind) error {
	if e, ok := errors.AsType[*strictjson.InvalidError](err); ok {
		return invalid.fields(e.Faults)
	}
	if errors.Is(err, strictjson.ErrMalformed) {
		return malformedBody.problem("the body is %v", err)
	}
	return err
}

// readJSON returns the body of a request with the type of JSON.
func (s *Server) readJSON(c echo.Context) ([]byte, error) {
	// A form on a foreign page must not do anything: a browser sends JSON to another
	// site only after a preflight request.
	contentType := strings.Join(c.Request().Header.Values(echo.HeaderContentType), ", ")
	if mediaType, _, err := mime.ParseMediaType(contentType); err != nil || mediaType != typeJSON {
		return nil, unsupportedType.problem("Content-Type %q: want %s", strictjson.Clip(contentType), typeJSON)
	}
	return s.readBody(c)
}

func (s *Server) readBody(c echo.Context) ([]byte, error) {
	limited := http.MaxBytesReader(c.Response().Writer, c.Request().Body, s.cfg.MaxBody)
	body, err := io.ReadAll(limited)
	var tooLarge *http.MaxBytesError
	switch {
	case err == nil:
		return bytes.TrimPrefix(body, []byte("\ufeff")), nil // a byte order mark
	case errors.As(err, &tooLarge):
		return nil, bodyTooLarge.problem("the body has more than %d bytes; send what it brings in several requests", tooLarge.Limit)
	case errors.Is(err, os.ErrDeadlineExceeded):
		c.Response().Header().Set(echo.HeaderConnection, "close")
		return nil, bodyTooSlow.problem("the body did not arrive within %s", s.cfg.ReadTimeout)
	case c.Request().Context().Err() != nil:
		return nil, fmt.Errorf("reading the body: %w", err) // the client left, or time is up
	}
	return nil, malformedBody.problem("the body cannot be read: %v", err)
}

const headerKey = "Idempotency-Key"

// maxKey is how many characters an idempotency key may have.
const maxKey = 255

// idempotencyKey returns the key of a request (IETF draft httpapi-idempotency-key-header), "" when it has none. The draft
// has it quoted, as a structured field; clients often send it bare, and mean the same.
func idempotencyKey(header http.Header, f *strictjson.Faults) string {
	given := header.Values(headerKey)
	if len(given) > 1 {
		f.Addf(headerKey, "given more than once")
	}
	if len(given) != 1 {
		return ""
	}
	key := given[0]
	if len(key) > 1 && strings.HasPrefix(key, `"`) && strings.HasSuffix(key, `"`) {
		key = key[1 : len(key)-1]
	}
	if key == "" || len(key) > maxKey || strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == '"' || r == '\\' }) {
		f.Addf(headerKey, "want 1 to %d visible ASCII characters without quotes and backslashes, bare or in double quotes", maxKey)
		return ""
	}
	return key
}
