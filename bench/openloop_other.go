//go:build !linux

package main

import (
	"context"
	"errors"
)

func (offer) run(context.Context) (*offered, error) {
	return nil, errors.New("the open loop needs Linux")
}
