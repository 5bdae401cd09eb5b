package main

import (
	"context"
	"fmt"
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
	if err := sendState(ctx, name, state); err != nil {
		log.WarnContext(ctx, "service manager not notified", "state", state, "error", err)
	}
}

// sendState sends a datagram. A name that begins with @ names an abstract socket.
func sendState(ctx context.Context, name, state string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unixgram", name)
	if err != nil {
		return fmt.Errorf("%s: %w", notifySocket, err)
	}
	defer func() { _ = conn.Close() }() // the datagram is sent, or its error known
	deadline, _ := ctx.Deadline()
	if err := conn.SetWriteDeadline(deadline); err != nil {
		return fmt.Errorf("%s: %w", notifySocket, err)
	}
	if _, err := conn.Write([]byte(state)); err != nil {
		return fmt.Errorf("%s: %w", notifySocket, err)
	}
	return nil
}
