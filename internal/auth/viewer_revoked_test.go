package auth_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/activityd/activityd/internal/auth"
	"github.com/activityd/activityd/internal/member"
)

// All tokens of one member that were made until now are refused, by every process that has the
// file, until the last of them has ended. Those of others are not, nor those made later.
func TestTheTokensOfAMemberAreRevoked(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		path := newFile(t, keySet)
		v, r, err := auth.LoadViewers(path, auth.ViewerOptions{}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		revoke := func(id member.ID) {
			t.Helper()
			if err := auth.RevokeViewer(t.Context(), path, id); err != nil {
				t.Fatal(err)
			}
			r.Reload(t.Context(), true)
		}
		// unknown is a token that does not say when it was made, for as long as there may be one.
		unknown := func(sub string) string {
			return join(homeHeader, `{"sub":"`+sub+`","exp":`+inSeconds(auth.MaxViewerToken)+`}`, byHome)
		}
		made := func(ago time.Duration) string {
			return join(homeHeader, `{"sub":"12345","iat":`+inSeconds(-ago)+`,"exp":`+inSeconds(auth.MaxViewerToken-ago)+`}`, byHome)
		}
		before := map[string]string{
			"by HS256": made(time.Hour), "by EdDSA": join(edHeader, claims(`,"iat":`+inSeconds(-time.Second)), byEd), "without iat": unknown("12345"),
			"in the same second": made(0), "by a clock that is ahead": made(-auth.ViewerLeeway),
		}
		others := []string{unknown("12346"), unknown("1234")}
		for _, token := range before {
			accept(t, v, token)
		}

		revoke(12345)
		revoked := func() {
			t.Helper()
			for what, token := range before {
				if e := refuse(t, v, token); !e.Expired && !strings.Contains(e.Reason, "were revoked") {
					t.Errorf("%s: %s", what, e.Reason)
				}
			}
			for _, token := range others {
				if _, err := v.Check(token); err != nil {
					t.Errorf("of another member: %v", err)
				}
			}
		}
		revoked()
		refuse(t, v, made(0)) // that may be one of before, by a clock that is ahead
		<-time.After(auth.ViewerLeeway + time.Second)
		revoked()
		later := made(0)
		accept(t, v, later)
		refuse(t, v, unknown("12345"))

		// Others that are revoked, and a new process, change nothing of that.
		revoke(7)
		accept(t, v, later)
		revoked()
		if v, r, err = auth.LoadViewers(path, auth.ViewerOptions{}, slog.New(slog.DiscardHandler)); err != nil {
			t.Fatal(err)
		}
		accept(t, v, later)
		revoked()
		<-time.After(auth.MaxViewerToken - 2*time.Minute)
		revoked()
		refuse(t, v, unknown("12345"))
		revoke(12345) // once more
		refuse(t, v, later)

		// A day and some minutes later all have ended, and it is forgotten.
		<-time.After(auth.MaxViewerToken + 2*auth.ViewerLeeway)
		refuse(t, v, unknown("12345"))
		<-time.After(time.Second)
		accept(t, v, unknown("12345"))
		for _, token := range before {
			if e := refuse(t, v, token); !e.Expired {
				t.Errorf("forgotten too early: %s", e.Reason)
			}
		}
		revoke(8)
		if got := revokedIn(t, path); len(got) != 1 || got["8"] != time.Now().Unix() {
			t.Errorf("the file still has %v", got)
		}
	})
}

func revokedIn(t *testing.T, path string) map[string]int64 {
	t.Helper()
	text, err := os.ReadFile(path)
	var set struct{ Revoked map[string]int64 }
	if err := errors.Join(err, json.Unmarshal(text, &set)); err != nil {
		t.Fatal(err)
	}
	return set.Revoked
}

// What else the file has stays, its mode too. A time to come, which only a person writes, is
// not lowered.
func TestRevokingKeepsTheRest(t *testing.T) {
	t.Parallel()
	const later = 253402300799
	path := newFile(t, strings.Replace(keySet, `"made-by"`, fmt.Sprintf(`"revoked":{"5":%d,"6":1},"made-by"`, later), 1))
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	const many = 5
	var all sync.WaitGroup
	for i := range many {
		all.Go(func() {
			k, err := auth.NewViewerKey(fmt.Sprint("key-", i), auth.HS256)
			if err := errors.Join(err, auth.RevokeViewer(t.Context(), path, member.ID(5+i)), auth.AddViewerKey(t.Context(), path, k)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if keys := parseKeys(t, string(text)); len(keys) != 3+many || !strings.Contains(string(text), `"made-by": "hand"`) || !strings.Contains(string(text), `"x-note": 1`) {
		t.Errorf("%d keys in %s", len(keys), text)
	}
	got := revokedIn(t, path)
	if len(got) != many || got["5"] != later || got["6"] < 1_700_000_000 {
		t.Errorf("revoked are %v", got)
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o640 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

func TestMembersWhoseTokensCannotBeRevoked(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	missing := filepath.Join(dir, "keys")
	if err := auth.RevokeViewer(t.Context(), missing, 5); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("in no file: %v", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left in the folder: %v, %v", left, err)
	}
	var many strings.Builder
	for i := range 36_000 {
		fmt.Fprintf(&many, `"%d":253402300799,`, 10_000_000_000+i)
	}
	for text, want := range map[string]string{
		`{"keys":[{}]}`:                   "keys[0].kid: is missing",
		`{"keys":[],"revoked":{"5":"1"}}`: "revoked.5: want a whole number",
		``:                                "want a JSON Web Key Set",
		`{"keys":[],"revoked":{` + strings.TrimSuffix(many.String(), ",") + `}}`: "would have more than 1048576 bytes",
	} {
		path := newFile(t, text)
		if err := auth.RevokeViewer(t.Context(), path, 5); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40s: %v, want %s", text, err, want)
		}
		if after, err := os.ReadFile(path); err != nil || string(after) != text {
			t.Errorf("%.40s is now %.40s, %v", text, after, err)
		}
	}
}
