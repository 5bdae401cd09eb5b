package access

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/activityd/activityd/internal/filelock"
	"github.com/activityd/activityd/internal/retry"
)

// FollowTokens reads the tokens of a file. Run the [Follower] to have them follow
// the file. A file that cannot be read, is not in order, or has no tokens at all
// is an error now; once there are tokens, only the last of these is a change.
func FollowTokens(path string, o Options) (*Tokens, *Follower, error) {
	t := NewTokens(nil)
	begun := false
	f, err := follow(Follower{
		what: "token file", paths: []string{path}, private: "token file",
		take: func(ctx context.Context, files []file) error {
			list, err := parseFile(files[0])
			if err == nil && len(list) == 0 && !begun {
				err = fmt.Errorf("%s has no tokens: make one with: activityd token NAME --scopes read --append %s", path, path)
			}
			if err != nil {
				return err
			}
			begun = true
			t.take(ctx, path, list, o)
			return nil
		},
	}, o)
	if err != nil {
		return nil, nil, fmt.Errorf("the token file cannot be used: %w", err)
	}
	return t, f, nil
}

func parseFile(f file) ([]Token, error) {
	list, err := Parse(string(f.text))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.path, err)
	}
	return list, nil
}

// take puts what a file says into use.
func (t *Tokens) take(ctx context.Context, path string, list []Token, o Options) {
	added, removed := t.Replace(list)
	o.Log.InfoContext(ctx, "took the tokens of the file", "file", path, "tokens", len(list), "added", added, "removed", removed)
	switch {
	case len(list) > 0:
	case len(removed) > 0:
		o.Log.WarnContext(ctx, "the token file has no tokens any more: nobody may ask", "file", path)
	default:
		o.Log.WarnContext(ctx, "the token file has no tokens still: nobody may ask", "file", path)
	}
}

// mode of a token file that is made here: hashes are no secrets, but who may do
// what is nobody else's business.
const mode = 0o600

// How long to wait for the lock of another process, which holds it for as long as it
// takes to write a line, and how often to try.
const (
	lockTimeout = 5 * time.Second
	lockPoll    = 20 * time.Millisecond
)

// openLocked opens a token file to add to it, which is made if there is none.
func openLocked(ctx context.Context, path string) (*os.File, error) {
	ctx, cancel := context.WithTimeout(ctx, lockTimeout)
	defer cancel()
	for {
		f, err := filelock.Open(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, mode)
		if !errors.Is(err, filelock.ErrLocked) || retry.Sleep(ctx, lockPoll) != nil {
			return f, err
		}
	}
}

// AppendToken adds a token to a file, which is made if there is none. It refuses
// a name that the file has, and a file that is not in order. Several may add to a
// file at once: they wait for each other, for a few seconds at most or until ctx
// ends. After an error the file is what it was.
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
		// An editor, say, which knows no locks.
		return fmt.Errorf("another program replaced %s meanwhile, so the token is not in it: try again", path)
	}
	return nil
}

// appendWhole writes in one piece, as a server may read the file at any time,
// and takes back what a full disk left of it.
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
