package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/activityd/activityd/internal/api"
	"github.com/activityd/activityd/internal/auth"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/settings"
	"github.com/activityd/activityd/internal/tasks"
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

// keyFlags registers the flags that the command token viewer has, too.
func (v *viewerConfig) keyFlags(f *pflag.FlagSet) {
	f.StringVar(&v.keys, "viewer-keys", "", "`file` of the keys that viewers' tokens are signed with (JWK Set); read again when it changes; activityd token key makes it")
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

func newToken() *cobra.Command {
	var scopes, rate, file string
	var queues []string
	cmd := &cobra.Command{
		Use:   "token NAME",
		Short: "Make a token of a client",
		Long: "Make a token of a client, which sends the secret as Authorization: Bearer SECRET. The secret is\n" +
			"printed once and kept nowhere. The line with its hash belongs into the file of serve --token-file,\n" +
			"which serve reads again when it changes. To revoke a token, delete its line. NAME is what the log\n" +
			"calls the client. docs/deploy.md has the scopes, and docs/page.md the tokens of viewers.",
		Example: "  activityd token homepage --scopes read --rate 500/s --append tokens\n" +
			"  activityd token mailer --scopes work --queues mail\n" +
			"  activityd token key 2026-11 --viewer-keys viewer-keys.json\n" +
			"  activityd token viewer 12345 --viewer-keys viewer-keys.json",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			token, secret, err := issue(args[0], scopes, rate, queues)
			if err != nil {
				return err
			}
			out, notes := cmd.OutOrStdout(), cmd.ErrOrStderr()
			if file == "" {
				sayf(notes, "The first line is the secret, which is shown only now; the second belongs into the token file.")
				_, err = fmt.Fprintf(out, "%s\n%s\n", secret, token)
				return err
			}
			if err := auth.AppendToken(file, token); err != nil {
				return fmt.Errorf("--append: %w", err)
			}
			sayf(notes, "Added %s to %s. This is its secret, which is shown only now:", token.Name, file)
			_, err = fmt.Fprintln(out, secret)
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&scopes, "scopes", "", "what it is good for, with commas: `read,write,admin,inspect,work` (required)")
	f.StringVar(&rate, "rate", "", "max requests in a second, for each process of serve, as in `100/s`; without it there is no limit")
	f.StringSliceVar(&queues, "queues", nil, "`queues` to work on, with commas; the scope work needs them")
	f.StringVar(&file, "append", "", "`file` to add the line to; made if there is none, for you alone to read")
	cmd.AddCommand(newTokenViewer(), newTokenKey())
	return cmd
}

// issue makes a token of a client. The errors name the flag.
func issue(name, words, rate string, queues []string) (t auth.Token, secret string, err error) {
	scopes, err := auth.ParseScope(words)
	if err != nil {
		return t, "", fmt.Errorf("--scopes: %w", err)
	}
	var limit auth.Limit
	if rate != "" {
		if limit, err = auth.ParseLimit(rate); err != nil {
			return t, "", fmt.Errorf("--rate: %w", err)
		}
	}
	for _, own := range tasks.DefaultWorkers() {
		if slices.Contains(queues, own.Queue) {
			return t, "", fmt.Errorf("--queues: activityd itself works on %s", own.Queue)
		}
	}
	return auth.Issue(name, scopes, limit, queues...)
}

func newTokenViewer() *cobra.Command {
	v, keyID, ttl := &viewerConfig{}, "", time.Duration(0)
	cmd := &cobra.Command{
		Use:   "viewer MEMBER",
		Short: "Make a viewer's token, for trying: the site makes those of its members",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			viewer, err := member.Parse(args[0])
			if err != nil {
				return fmt.Errorf("MEMBER: %w", err)
			}
			key, err := signingKey(v.keys, keyID)
			if err != nil {
				return err
			}
			token, err := key.Sign(viewer, ttl, v.audience)
			if err != nil {
				return fmt.Errorf("--ttl, --key: %w", err)
			}
			sayf(cmd.ErrOrStderr(), "A token of viewer %s by the key %s, until %s. Who has it may ask as that member until then.",
				viewer, key.ID, time.Now().Add(ttl).Format(time.DateTime))
			_, err = fmt.Fprintln(cmd.OutOrStdout(), token)
			return err
		},
	}
	f := cmd.Flags()
	v.keyFlags(f)
	f.StringVar(&keyID, "key", "", "`id` (kid) of the key to sign with; without it, the last one that signs")
	f.DurationVar(&ttl, "ttl", time.Hour, "how long the token lives, at most 24h")
	return cmd
}

// errNoKeys is that no file of keys is named.
var errNoKeys = errors.New("--viewer-keys: is missing: want the file that serve is given")

// signingKey returns the key of a file that has an id and signs, or the last: operators add new keys at the end.
func signingKey(file, id string) (key auth.ViewerKey, err error) {
	if file == "" {
		return key, errNoKeys
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return key, fmt.Errorf("--viewer-keys: %w", err)
	}
	keys, err := auth.ParseViewerKeys(bytes.TrimPrefix(text, []byte("\ufeff")))
	if err != nil {
		return key, fmt.Errorf("--viewer-keys: %s: %w", file, err)
	}
	for _, k := range slices.Backward(keys) {
		if k.CanSign() && (id == "" || k.ID == id) {
			return k, nil
		}
	}
	return key, fmt.Errorf("--viewer-keys, --key: %s has no such key that signs: it must have k (HS256) or d (EdDSA)", file)
}

func newTokenKey() *cobra.Command {
	file, alg := "", ""
	cmd := &cobra.Command{
		Use:   "key ID",
		Short: "Add a key for viewers' tokens to a file, and make the file if there is none",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if file == "" {
				return errNoKeys
			}
			key, err := auth.NewViewerKey(args[0], alg)
			if err != nil {
				return fmt.Errorf("ID: %w", err)
			}
			if err := auth.AddViewerKey(file, key); err != nil {
				return fmt.Errorf("--viewer-keys: %w", err)
			}
			sayf(cmd.ErrOrStderr(), "Added the key %s (%s) to %s, with what makes tokens: give it to the site, and keep it from all others.", key.ID, key.Alg, file)
			return nil
		},
	}
	cmd.Flags().StringVar(&file, "viewer-keys", "", "`file` to add the key to; made for you alone to read")
	cmd.Flags().Var(settings.NewChoice(&alg, auth.EdDSA, auth.HS256), "alg", "algorithm of the key")
	return cmd
}
