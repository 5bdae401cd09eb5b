package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"time"
)

// notifySocket is the variable by which a service manager names its notification socket: the protocol of sd_notify(3).
const notifySocket = "NOTIFY_SOCKET"

// The states of a service.
const (
	stateReady     = "READY=1" // it answers, be it with 503
	stateOnceReady = "STATUS=ready"
	stateStopping  = "STOPPING=1"
)

// statusOf is the line that is added to stateReady, for people, when MySQL cannot be used yet.
func statusOf(notReady error) string {
	if notReady == nil {
		return ""
	}
	return "\nSTATUS=not ready: " + strings.ReplaceAll(notReady.Error(), "\n", " ")
}

// notifyManager sends a state to the service manager, if there is a manager. A failure is logged: the service does not
// depend on it, but systemd ends a service of Type=notify that never gets ready.
func notifyManager(ctx context.Context, log *slog.Logger, state string) {
	name := os.Getenv(notifySocket)
	if name == "" {
		return
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: name, Net: "unixgram"})
	if err == nil {
		_ = conn.SetWriteDeadline(time.Now().Add(time.Second)) // a socket has deadlines
		_, err = io.WriteString(conn, state)
		err = errors.Join(err, conn.Close())
	}
	if err != nil {
		log.WarnContext(ctx, "service manager not notified", "state", state, "error", err)
	}
}
