package api

import "time"

// Observer is told of every request, for metrics. Its methods are called from
// many goroutines, must be quick, and must not call back.
type Observer interface {
	// RequestBegan: a request has arrived.
	RequestBegan()
	// RequestEnded: the response was written after took. The route is its
	// template, or "unmatched"; the method is whatever the client sent; status
	// 499 stands for a client that left.
	RequestEnded(method, route string, status int, took time.Duration)
}

type unobserved struct{}

func (unobserved) RequestBegan()                                   {}
func (unobserved) RequestEnded(string, string, int, time.Duration) {}
