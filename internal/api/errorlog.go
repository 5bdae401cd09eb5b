package api

import (
	"bytes"
	"context"
	"log"
	"log/slog"
)

// handshakeFailed begins what net/http says of a connection that did not get to
// TLS. It has no other way to tell.
var handshakeFailed = []byte("http: TLS handshake error")

// newErrorLog is where net/http writes. Strangers who only knock at a TLS port
// must not fill the log, and the rest is worth a look.
func newErrorLog(l *slog.Logger) *log.Logger { return log.New(errorLog{l}, "", 0) }

type errorLog struct{ log *slog.Logger }

func (e errorLog) Write(line []byte) (int, error) {
	level := slog.LevelWarn
	if bytes.HasPrefix(line, handshakeFailed) {
		level = slog.LevelDebug
	}
	e.log.Log(context.Background(), level, string(bytes.TrimSpace(line)))
	return len(line), nil
}
