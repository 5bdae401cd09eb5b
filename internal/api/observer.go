package api

import (
	"time"

	"github.com/activityd/activityd/internal/auth"
	"github.com/activityd/activityd/internal/httpserver"
)

// Observer is told of every connection and every request, for metrics. Its methods
// are called from many goroutines, must be quick, and must not call back.
type Observer interface {
	httpserver.Observer

	// RequestBegan: a request has arrived.
	RequestBegan()
	// RequestEnded: the response was written after took. The route is its
	// template, or "unmatched"; the method is whatever the client sent; status
	// 499 stands for a client that left.
	RequestEnded(method, route string, status int, took time.Duration)
	// CallerJudged: it was decided whether a request may be made that needs a
	// scope. The token is the name of the one that it bears, "" if it bears none
	// that is known. The verdict "" stands for an [Authorizer] that failed.
	CallerJudged(token string, verdict auth.Verdict)
	// EnqueueRefused: tasks were turned away, because too many wait.
	EnqueueRefused()
}

type unobserved struct{}

func (unobserved) ConnectionOpened()                               {}
func (unobserved) ConnectionClosed()                               {}
func (unobserved) ConnectionRefused()                              {}
func (unobserved) RequestBegan()                                   {}
func (unobserved) RequestEnded(string, string, int, time.Duration) {}
func (unobserved) CallerJudged(string, auth.Verdict)               {}
func (unobserved) EnqueueRefused()                                 {}
