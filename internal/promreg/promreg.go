// Package promreg registers the metrics of packages that programs use more than once.
package promreg

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// Share registers a collector and returns it, or the one that is registered in its place, so that
// both users count together. Without a registerer (nil) it is not exported. It panics, as
// [prometheus.MustRegister] does, when something else has the name.
func Share[C prometheus.Collector](to prometheus.Registerer, c C) C {
	if to == nil {
		return c
	}
	err := to.Register(c)
	if there, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok {
		if same, ok := there.ExistingCollector.(C); ok {
			return same
		}
	}
	if err != nil {
		panic(err)
	}
	return c
}
