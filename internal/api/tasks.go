package api

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/activityd/activityd/internal/queue"
	"github.com/activityd/activityd/internal/tasks"
)

type enqueuedJSON struct {
	Tasks []taskIDJSON `json:"tasks"`
}

type taskIDJSON struct {
	ID string `json:"id"`
}

// enqueueTasks takes all tasks of a request or none, and answers after the commit. A
// client may repeat a request whose answer it missed: tasks are hints to look again.
// With an Idempotency-Key a repetition enqueues nothing.
func (s *Server) enqueueTasks(c echo.Context) error {
	var f faults
	f.query(c.QueryString())
	key := f.idempotencyKey(c.Request().Header)
	if len(f) > 0 {
		return refuseFields(invalidParameter, f)
	}
	if err := s.refuseOverload(); err != nil {
		return err
	}
	batch, err := s.readTasks(c)
	if err != nil {
		return err
	}
	var ids []uint64
	var replayed bool
	if ctx := c.Request().Context(); key == "" {
		ids, err = s.cfg.Enqueuer.Enqueue(ctx, batch)
	} else {
		if name := callerOf(c).Name; name != "" {
			key = name + "\x00" + key // keys of two callers are different; no name has a NUL in it
		}
		ids, replayed, err = s.cfg.Enqueuer.EnqueueOnce(ctx, key, batch)
	}
	if err != nil {
		return fmt.Errorf("enqueuing %d tasks: %w", len(batch), err)
	}
	if len(ids) != len(batch) {
		return fmt.Errorf("%d tasks were enqueued under %d ids", len(batch), len(ids))
	}
	if replayed {
		c.Response().Header().Set(headerReplayed, "true")
	}
	out := each(ids, func(id uint64) taskIDJSON { return taskIDJSON{strconv.FormatUint(id, 10)} })
	return writeJSON(c, http.StatusAccepted, typeJSON, enqueuedJSON{out})
}

// refuseOverload comes before the body is read, so that a refused request costs little.
func (s *Server) refuseOverload() error {
	retryAfter, overloaded := s.cfg.Overloaded()
	if !overloaded {
		return nil
	}
	enqueuesRefused.Inc()
	p := tooManyWaiting.problem("more tasks wait than the workers get done; nothing was enqueued, send the same again later")
	p.retryAfter = wholeSeconds(retryAfter)
	return &refusal{p}
}

// readTasks reads the body of a request.
func (s *Server) readTasks(c echo.Context) ([]queue.New, error) {
	if err := requireJSON(c.Request().Header); err != nil {
		return nil, err
	}
	body, err := s.readBody(c)
	if err != nil {
		return nil, err
	}
	batch, err := tasks.ParseBody(body, s.cfg.MaxBatch)
	if invalid, ok := errors.AsType[*tasks.InvalidError](err); ok {
		return nil, refuseFields(invalidTask, faults(invalid.Faults))
	}
	if err != nil {
		return nil, refuse(malformedBody, "the body is %v", err)
	}
	return batch, nil
}

// requireJSON also keeps a form on a foreign page from enqueuing anything: a browser
// sends this content type to another site only after a preflight request.
func requireJSON(header http.Header) error {
	given := header.Values(echo.HeaderContentType)
	if len(given) == 1 {
		if mediaType, _, err := mime.ParseMediaType(given[0]); err == nil && mediaType == typeJSON {
			return nil
		}
	}
	return refuse(unsupportedType, "Content-Type %q: want %s", clip(strings.Join(given, ", ")), typeJSON)
}

func (s *Server) readBody(c echo.Context) ([]byte, error) {
	limited := http.MaxBytesReader(c.Response().Writer, c.Request().Body, s.cfg.MaxBody)
	body, err := io.ReadAll(limited)
	tooLarge := (*http.MaxBytesError)(nil)
	switch {
	case err == nil:
		return body, nil
	case errors.As(err, &tooLarge):
		return nil, refuse(bodyTooLarge, "the body has more than %d bytes; send the tasks in several requests", tooLarge.Limit)
	case errors.Is(err, os.ErrDeadlineExceeded):
		c.Response().Header().Set(echo.HeaderConnection, "close")
		return nil, refuse(bodyTooSlow, "the body did not arrive within %s", s.cfg.ReadTimeout)
	case c.Request().Context().Err() != nil:
		return nil, fmt.Errorf("reading the body: %w", err) // the client left, or time is up
	}
	return nil, refuse(malformedBody, "the body cannot be read: %v", err)
}
