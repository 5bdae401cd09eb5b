package api

import (
	"context"
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

// enqueueTasks takes all tasks of a request or none, and answers after the
// commit. That a client repeats a request whose answer it missed does no harm:
// tasks are hints to look again. With an Idempotency-Key it does not even cost.
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
	ids, replayed, err := s.enqueue(c.Request().Context(), ownKey(c, key), batch)
	if err != nil {
		return fmt.Errorf("enqueuing %d tasks: %w", len(batch), err)
	}
	if replayed {
		c.Response().Header().Set(headerReplayed, "true")
	}
	return writeEnqueued(c, batch, ids)
}

// ownKey makes the key the caller's own, so that two who choose the same do not
// meet. No name has a NUL in it.
func ownKey(c echo.Context, key string) string {
	if name := callerOf(c).Name; key != "" && name != "" {
		return name + "\x00" + key
	}
	return key
}

// enqueue hands the batch over; without a key nothing can be a replay.
func (s *Server) enqueue(ctx context.Context, key string, batch []queue.New) (ids []uint64, replayed bool, err error) {
	if key != "" {
		return s.cfg.Enqueuer.EnqueueOnce(ctx, key, batch)
	}
	ids, err = s.cfg.Enqueuer.Enqueue(ctx, batch)
	return ids, false, err
}

// refuseOverload comes before the body is read, so that what is turned away
// costs little.
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

func writeEnqueued(c echo.Context, batch []queue.New, ids []uint64) error {
	if len(ids) != len(batch) {
		return fmt.Errorf("%d tasks were enqueued under %d ids", len(batch), len(ids))
	}
	out := each(ids, func(id uint64) taskIDJSON { return taskIDJSON{strconv.FormatUint(id, 10)} })
	return writeJSON(c, http.StatusAccepted, typeJSON, enqueuedJSON{out})
}

// requireJSON also keeps a form on a foreign page from enqueuing anything: a
// browser does not send this content type across sites without asking first.
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
