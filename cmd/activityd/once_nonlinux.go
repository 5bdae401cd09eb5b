//go:build unix && !linux

package main

import "syscall"

// The child outlives this process if it is killed, and it is not noticed that it was
// stopped from the terminal.

func dieWithParent(*syscall.SysProcAttr) {}

func keepThread() (release func()) { return func() {} }

func watchStops(int) <-chan struct{} { return nil }
