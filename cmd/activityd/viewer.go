package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/spf13/pflag"

	"github.com/activityd/activityd/internal/api"
	"github.com/activityd/activityd/internal/auth"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/settings"
)

// viewerConfig is the part about the tokens of viewers.
type viewerConfig struct {
	keys         string // a file
	audience     string
	allowOrigins []string
}

// viewerLimit is how many requests a viewer may make of a process: a homepage asks once a visit, and a widget once a
// minute.
var viewerLimit = auth.Limit{PerSecond: 2, Burst: 30}

func (v *viewerConfig) flags(f *pflag.FlagSet) {
	v.keyFlags(f)
	f.StringSliceVar(&v.allowOrigins, "allow-origin", nil, "`origins` of the pages that may ask for viewers, with commas, as in https://photos.example")
	f.Lookup("allow-origin").DefValue = ""
	settings.NoFlag(f, "viewer-audience")
}

// keyFlags registers the flags that the command token has, too.
func (v *viewerConfig) keyFlags(f *pflag.FlagSet) {
	f.StringVar(&v.keys, "viewer-keys", "", "`file` of the keys that viewers' tokens are signed with (JWK Set); read again when it changes; activityd token --new-key makes it")
	f.StringVar(&v.audience, "viewer-audience", "", "`audience` (aud) that viewers' tokens must be for; without it they must be for none")
}

func (v *viewerConfig) check(want wanted) {
	want("viewer-audience", v.audience == "" || v.keys != "", "needs --viewer-keys")
	want("allow-origin", len(v.allowOrigins) == 0 || v.keys != "", "needs --viewer-keys")
	for _, origin := range v.allowOrigins {
		err := api.CheckOrigin(origin)
		want("allow-origin", err == nil, "%v", err)
	}
}

// makeViewerToken prints a token of a viewer to out, and the name of its key to notes.
func makeViewerToken(o tokenOptions, out, notes io.Writer) error {
	viewer, err := member.Parse(o.viewer)
	if err != nil {
		return fmt.Errorf("--viewer: %w", err)
	}
	if o.viewers.keys == "" {
		return errors.New("--viewer-keys: is missing: want the file that serve is given")
	}
	text, err := os.ReadFile(o.viewers.keys)
	if err != nil {
		return fmt.Errorf("--viewer-keys: %w", err)
	}
	keys, err := auth.ParseViewerKeys(bytes.TrimPrefix(text, []byte("\ufeff")))
	if err != nil {
		return fmt.Errorf("--viewer-keys: %s: %w", o.viewers.keys, err)
	}
	keys = slices.DeleteFunc(keys, func(k auth.ViewerKey) bool { return !k.CanSign() || o.key != "" && k.ID != o.key })
	if len(keys) == 0 {
		return fmt.Errorf("--viewer-keys, --key: %s has no such key that signs: it must have k (HS256) or d (EdDSA)", o.viewers.keys)
	}
	key := keys[len(keys)-1] // operators add new keys at the end
	token, err := key.Sign(viewer, o.ttl, o.viewers.audience)
	if err != nil {
		return fmt.Errorf("--ttl, --key: %w", err)
	}
	sayf(notes, "A token of viewer %s by the key %s, until %s. Who has it may ask as that member until then.",
		viewer, key.ID, time.Now().Add(o.ttl).Format(time.DateTime))
	_, err = fmt.Fprintln(out, token)
	return err
}

// addViewerKey adds a new key to a file.
func addViewerKey(o tokenOptions, notes io.Writer) error {
	if o.viewers.keys == "" {
		return errors.New("--viewer-keys: is missing: want the file to add the key to")
	}
	key, err := auth.NewViewerKey(o.newKey, o.alg)
	if err != nil {
		return fmt.Errorf("--new-key: %w", err)
	}
	if err := auth.AddViewerKey(o.viewers.keys, key); err != nil {
		return fmt.Errorf("--viewer-keys: %w", err)
	}
	sayf(notes, "Added the key %s (%s) to %s, with what makes tokens: give it to the site, and keep it from all others.", key.ID, key.Alg, o.viewers.keys)
	return nil
}
