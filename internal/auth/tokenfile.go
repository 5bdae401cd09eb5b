package auth

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/activityd/activityd/internal/filelock"
	"github.com/activityd/activityd/internal/retry"
)

// LoadTokens loads the tokens of a file. It fails when the file cannot be read, is not in
// order, or has no tokens; a [Reloader.Reload] accepts one without tokens.
func LoadTokens(path string, log *slog.Logger) (*Tokens, *Reloader, error) {
	t := NewTokens(nil)
	first := true
	r := &Reloader{
		what: "token file", paths: []string{path}, private: "token file", log: log,
		use: func(ctx context.Context, files []file) error {
			list, err := Parse(string(files[0].text))
			if err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			if len(list) == 0 && first {
				return fmt.Errorf("%s has no tokens: make one with: activityd token NAME --scopes read --append %s", path, path)
			}
			first = false
			added, removed := t.Replace(list)
			log.InfoContext(ctx, "token file loaded", "file", path, "tokens", len(list), "added", added, "removed", removed)
			if len(list) == 0 {
				log.WarnContext(ctx, "token file has no tokens, all requests are refused", "file", path)
			}
			return nil
		},
	}
	if err := r.reload(context.Background(), true); err != nil {
		return nil, nil, fmt.Errorf("the token file cannot be used: %w", err)
	}
	return t, r, nil
}

// openLocked opens a token file to append to it. It creates it for this user alone: hashes
// are no secrets, but other users need not know what a client may do. Another process
// holds the lock for as long as it takes to write a line.
func openLocked(ctx context.Context, path string) (*os.File, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	for {
		f, err := filelock.Open(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
		if !errors.Is(err, filelock.ErrLocked) || retry.Sleep(ctx, 20*time.Millisecond) != nil {
			return f, err
		}
	}
}

// AppendToken appends a token to a file, and creates the file if needed. It refuses a name
// that the file has, and a file that is not in order. Several processes may append at
// once: they wait for each other, for 5 seconds or until ctx ends. After an error the file
// is unchanged.
func AppendToken(ctx context.Context, path string, t Token) (err error) {
	f, err := openLocked(ctx, path)
	if err != nil {
		return fmt.Errorf("the token file cannot be opened: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	before, err := readFile(path)
	if err != nil {
		return fmt.Errorf("the token file cannot be read: %w", err)
	}
	line := t.String() + "\n"
	if text := string(before.text); text != "" && !strings.HasSuffix(text, "\n") {
		line = "\n" + line
	}
	if _, err := Parse(string(before.text) + line); err != nil {
		return fmt.Errorf("the token cannot be added to %s: %w", path, err)
	}
	if err := appendWhole(f, int64(len(before.text)), line); err != nil {
		return err
	}
	if !filelock.IsNamed(f, path) {
		// By an editor, say, which knows no locks.
		return fmt.Errorf("another program replaced %s at the same time, so the token is not in it: try again", path)
	}
	return nil
}

// appendWhole appends in one write, as a server may read the file at any time, and
// removes what a full disk left of it.
func appendWhole(f *os.File, size int64, line string) error {
	_, err := f.WriteString(line)
	if err == nil {
		err = f.Sync()
	}
	if err != nil {
		return errors.Join(fmt.Errorf("the token cannot be written: %w", err), f.Truncate(size))
	}
	return nil
}
