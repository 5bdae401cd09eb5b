package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// actor runs until its context ends, and then stops its work.
type actor func(ctx context.Context) error

// runStages runs all actors until ctx ends or an actor fails. Then it stops the stages in order: the actors of a stage
// go on until all actors of the stage before have returned.
func runStages(ctx context.Context, stages ...[]actor) error {
	group, ended := errgroup.WithContext(ctx)
	before := ended.Done()
	for _, actors := range stages {
		running, stop := context.WithCancel(context.WithoutCancel(ctx))
		var stage sync.WaitGroup
		for _, run := range actors {
			stage.Add(1)
			group.Go(func() error {
				defer stage.Done()
				return run(running)
			})
		}
		previous, stopped := before, make(chan struct{})
		group.Go(func() error {
			<-previous
			stop()
			stage.Wait()
			close(stopped)
			return nil
		})
		before = stopped
	}
	return group.Wait()
}

// serving returns an actor that serves until its context ends, and then finishes the requests under way.
func serving(server interface {
	Serve() error
	Shutdown(ctx context.Context) error
}, grace time.Duration,
) actor {
	return func(ctx context.Context) error {
		stopped := make(chan error, 1)
		stop := context.AfterFunc(ctx, func() {
			bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
			defer cancel()
			stopped <- server.Shutdown(bounded)
		})
		err := server.Serve()
		if stop() { // it ended by itself
			return err
		}
		return errors.Join(err, <-stopped)
	}
}

// closers is a stack of functions that close resources.
type closers []func() error

func (c *closers) push(closer func() error) { *c = append(*c, closer) }

// close calls all closers, the last first.
func (c *closers) close() error {
	var errs []error
	for _, closer := range slices.Backward(*c) {
		if err := closer(); err != nil {
			errs = append(errs, fmt.Errorf("close: %w", err))
		}
	}
	return errors.Join(errs...)
}
