package access

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
)

// FollowTokens reads the tokens of a file. Run the [Follower] to have them follow
// the file. A file that cannot be read, is not in order, or has no tokens at all
// is an error now; once there are tokens, only the last of these is a change.
func FollowTokens(path string, o Options) (*Tokens, *Follower, error) {
	t := NewTokens(nil)
	f, err := follow(Follower{
		what: "token file", paths: []string{path},
		take: func(ctx context.Context, files []file) error { return t.takeFile(ctx, files[0], o) },
	}, o)
	if err != nil {
		return nil, nil, fmt.Errorf("the token file cannot be used: %w", err)
	}
	if t.Len() == 0 {
		return nil, nil, fmt.Errorf("the token file %s has no tokens: make one with: activityd token NAME --scopes read --append %s", path, path)
	}
	return t, f, nil
}

func (t *Tokens) takeFile(ctx context.Context, f file, o Options) error {
	list, err := Parse(string(f.text))
	if err != nil {
		return fmt.Errorf("%s: %w", f.path, err)
	}
	added, removed := t.Replace(list)
	o.Log.InfoContext(ctx, "took the tokens of the file", "file", f.path, "tokens", len(list), "added", added, "removed", removed)
	if len(list) == 0 {
		o.Log.WarnContext(ctx, "the token file has no tokens any more: nobody may ask", "file", f.path)
	}
	return nil
}

// mode of a token file that is made here: hashes are no secrets, but who may do
// what is nobody else's business.
const mode = 0o600

// AppendToken adds a token to a file, which is made if there is none. It refuses
// a name that the file has, and a file that is not in order.
func AppendToken(path string, t Token) (err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, mode) //nolint:gosec // G304: the operator names it
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
	return appendWhole(f, int64(len(before.text)), line)
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
