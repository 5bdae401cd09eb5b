package auth

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/strictjson"
)

// revocations are the unix seconds at which all tokens of a member were revoked.
type revocations map[member.ID]int64

// revokedFor is how long a token that was made before a revocation could be accepted after
// it: MaxViewerToken, by a clock of the site that is ahead, and the leeway at its end.
const revokedFor = MaxViewerToken + 2*ViewerLeeway

// refuses reports whether a token may have been made before its member's were revoked. One
// without iat may have been. So may one whose iat is up to a minute later: the clock of the
// site may be ahead. When all that were revoked have ended, it refuses none.
func (r revocations) refuses(c *viewerClaims) bool {
	at, revoked := r[c.viewer]
	return revoked && !isOver(at) &&
		(c.IssuedAt == nil || !c.IssuedAt.After(time.Unix(at, 0).Add(ViewerLeeway)))
}

func isOver(at int64) bool { return time.Since(time.Unix(at, 0)) > revokedFor }

func readRevocations(r *strictjson.Reader, set strictjson.Object) revocations {
	value, given := set.Get("revoked")
	if !given {
		return nil
	}
	o, _ := r.Object("revoked", value)
	all := revocations{}
	for name, value := range o.All() { // there may be many: o.Whole would look for each of them
		id, err := member.Parse(name)
		if err != nil {
			o.Addf(name, "%v", err)
		}
		at, err := strconv.ParseInt(string(value), 10, 64)
		if err != nil || at < 0 || at > maxSeconds {
			o.Addf(name, "want a whole number from 0 to %d", maxSeconds)
		}
		all[id] = at
	}
	return all
}

// RevokeViewer has all tokens of a member refused that were made before now, by an entry in a
// key file: see [Viewers.Check]. It removes the entries that are over. As with [AddViewerKey],
// the file is replaced whole, and unchanged after an error.
func RevokeViewer(ctx context.Context, path string, id member.ID) error {
	if _, err := os.Stat(path); err != nil {
		return fmt.Errorf("the key file cannot be read: %w", err)
	}
	return changeFile(ctx, "key file", path, func(before []byte) ([]byte, error) {
		set, err := parseViewerSet(before)
		if err != nil {
			return nil, err
		}
		revoked := revocations{id: max(time.Now().Unix(), set.revoked[id])}
		for other, at := range set.revoked {
			if other != id && !isOver(at) {
				revoked[other] = at
			}
		}
		all := map[string]json.RawMessage{}
		if err := json.Unmarshal(before, &all); err != nil {
			return nil, err
		}
		return withValue(all, "revoked", revoked)
	})
}

// withValue returns the text of a set of keys with another value under a name.
func withValue(set map[string]json.RawMessage, name string, value any) (text []byte, err error) {
	if set[name], err = json.Marshal(value); err != nil {
		return nil, err
	}
	if text, err = json.MarshalIndent(set, "", "  "); err != nil {
		return nil, err
	}
	return append(text, '\n'), nil
}
