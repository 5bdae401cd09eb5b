package main

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/activityd/activityd/internal/index"
)

// errLost: what was done for some is gone, so that going on makes no sense.
var errLost = errors.New("the sets were lost meanwhile, because Redis was emptied or came back with older data: run it again")

// epochWatch notices that Redis loses what it holds. It is safe for concurrent
// use.
type epochWatch struct {
	index *index.Index
	lose  func() // is told of a loss

	reading sync.Mutex // held while Redis is asked, so that answers are compared in their order

	mu    sync.Mutex // guards what follows
	begun bool
	last  index.Epoch
	lost  bool
}

// begin begins to watch, and tells whether nothing was lost since before. With
// token, Redis has one from now on.
func (w *epochWatch) begin(ctx context.Context, before index.Epoch, token bool) (ok bool, err error) {
	read := w.index.Epoch
	if token {
		read = w.index.BeginEpoch
	}
	w.reading.Lock()
	defer w.reading.Unlock()
	now, err := read(ctx)
	if err != nil {
		return false, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.begun, w.last = true, now
	return now.Continues(before), nil
}

// look looks whether anything was lost. An error says that Redis did not answer.
func (w *epochWatch) look(ctx context.Context) error {
	w.reading.Lock()
	defer w.reading.Unlock()
	now, err := w.index.Epoch(ctx)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.begun || w.lost {
		return nil
	}
	if !now.Continues(w.last) {
		w.lost = true
		w.lose()
		return nil
	}
	w.last = now
	return nil
}

// state returns what was read last, and whether there was a loss.
func (w *epochWatch) state() (last index.Epoch, lost bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last, w.lost
}

// checkKept compares --materialize with what those say who keep the sets. Where a
// mistake would build everybody's sets, or miss some, it is an error.
func (l *longRun) checkKept(ctx context.Context) error {
	kept, err := l.index.Materialize(ctx)
	if err != nil || kept == "" || kept == l.materialize {
		return err
	}
	err = fmt.Errorf("--materialize (%s): is %s, but the sets in Redis are kept with --materialize=%s: want the same here, "+
		"or start serve with the other first", environmentName("materialize"), l.materialize, kept)
	if l.changes {
		return err
	}
	l.say(fmt.Sprintf("warning: %v", err))
	return nil
}
