package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/activityd/activityd/internal/auth"
	"github.com/activityd/activityd/internal/settings"
	"github.com/activityd/activityd/internal/tasks"
)

// tokenOptions are the flags of the command token.
type tokenOptions struct {
	scopes string
	rate   string
	file   string
	queues []string

	viewers viewerConfig
	viewer  string // a member's id
	key     string
	ttl     time.Duration
	newKey  string
	alg     string
}

func newToken() *cobra.Command {
	o := tokenOptions{}
	cmd := &cobra.Command{
		Use:   "token {NAME | --viewer MEMBER | --new-key ID}",
		Short: "Make a token of a client or of a viewer, or a key for those of viewers",
		Long: "Make a token. The secret is printed once and kept nowhere: give it to the client, which\n" +
			"sends it as Authorization: Bearer SECRET. The line with its hash belongs into the file\n" +
			"that serve is given as --token-file; --append writes it there, and a running serve takes\n" +
			"it over within a second or two. To revoke a token, delete its line.\n\n" +
			"The scope read is for asking, write for enqueuing tasks; inspect lets operators look\n" +
			"at the console; admin may all of that, and sees in explanations what members may not; work\n" +
			"is for working on the tasks of --queues, whose kinds are the site's own. NAME is what the\n" +
			"log calls the client.\n\n" +
			"A viewer's token is made by the site, which signs it with a key of --viewer-keys; with it\n" +
			"a browser asks /v1/me for its member. --viewer makes one for trying. --new-key adds a key\n" +
			"to the file, which it makes if there is none, for you alone to read. To revoke the tokens\n" +
			"that a key signed, delete the key.",
		Example: "  activityd token homepage --scopes read --rate 500/s --append tokens\n" +
			"  activityd token uploads --scopes write\n" +
			"  activityd token mailer --scopes work --queues mail\n" +
			"  activityd token --new-key 2026-11 --viewer-keys viewer-keys.json\n" +
			"  activityd token --viewer 12345 --viewer-keys viewer-keys.json",
		Args: func(cmd *cobra.Command, args []string) error {
			form, err := tokenForm(cmd.Flags())
			switch {
			case err != nil:
				return err
			case form == "NAME":
				return cobra.ExactArgs(1)(cmd, args)
			}
			return cobra.NoArgs(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			switch form, _ := tokenForm(cmd.Flags()); form { // Args checked it
			case "--new-key":
				return addViewerKey(o, cmd.ErrOrStderr())
			case "--viewer":
				return makeViewerToken(o, cmd.OutOrStdout(), cmd.ErrOrStderr())
			}
			return makeToken(args[0], o, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.scopes, "scopes", "", "what it is good for, with commas: `read,write,admin,inspect,work` (required for a client)")
	f.StringVar(&o.rate, "rate", "", "max requests in a second, for each process of serve, as in `100/s`; without it there is no limit")
	f.StringSliceVar(&o.queues, "queues", nil, "`queues` to work on, with commas; the scope work needs them")
	f.StringVar(&o.file, "append", "", "`file` to add the line to; made if there is none, for you alone to read")
	o.viewers.keyFlags(f)
	f.StringVar(&o.viewer, "viewer", "", "`member` to make a viewer's token for")
	f.StringVar(&o.key, "key", "", "`id` (kid) of the key to sign a viewer's token with; without it, the last one that signs")
	f.DurationVar(&o.ttl, "ttl", time.Hour, "how long a viewer's token lives, at most 24h")
	f.StringVar(&o.newKey, "new-key", "", "`id` (kid) of a key to make and to add to --viewer-keys, such as the month")
	f.Var(settings.NewChoice(&o.alg, auth.EdDSA, auth.HS256), "alg", "algorithm of the new key")
	completeFlag(cmd, "scopes", []string{"read", "write", "admin", "inspect", "work"})
	return cmd
}

// tokenForms are the forms of the command that a flag goes with.
var tokenForms = map[string][]string{
	"scopes": {"NAME"}, "rate": {"NAME"}, "append": {"NAME"}, "queues": {"NAME"},
	"viewer": {"--viewer"}, "key": {"--viewer"}, "ttl": {"--viewer"}, "viewer-audience": {"--viewer"},
	"new-key": {"--new-key"}, "alg": {"--new-key"},
	"viewer-keys": {"--viewer", "--new-key"},
}

// tokenForm returns the form that is meant, and an error for a flag that was given and does
// nothing in it: a client's token with --ttl would seem to end.
func tokenForm(f *pflag.FlagSet) (form string, err error) {
	form = "NAME"
	switch {
	case f.Changed("viewer"):
		form = "--viewer"
	case f.Changed("new-key"):
		form = "--new-key"
	}
	f.Visit(func(flag *pflag.Flag) {
		if forms := tokenForms[flag.Name]; err == nil && forms != nil && !slices.Contains(forms, form) {
			err = fmt.Errorf("--%s: goes with %s, and not with %s", flag.Name, strings.Join(forms, " and "), form)
		}
	})
	return form, err
}

// makeToken prints the values to keep to out, the secret first, and prints advice on their use to notes.
func makeToken(name string, o tokenOptions, out, notes io.Writer) error {
	scopes, err := auth.ParseScope(o.scopes)
	if err != nil {
		return fmt.Errorf("--scopes: %w", err)
	}
	var limit auth.Limit
	if o.rate != "" {
		if limit, err = auth.ParseLimit(o.rate); err != nil {
			return fmt.Errorf("--rate: %w", err)
		}
	}
	for _, own := range tasks.DefaultWorkers() {
		if slices.Contains(o.queues, own.Queue) {
			return fmt.Errorf("--queues: activityd itself works on %s", own.Queue)
		}
	}
	token, secret, err := auth.Issue(name, scopes, limit, o.queues...)
	if err != nil {
		return err
	}
	if o.file == "" {
		sayf(notes, "The first line is the secret, which is shown only now; the second belongs into the token file.")
		_, err = fmt.Fprintf(out, "%s\n%s\n", secret, token)
		return err
	}
	if err := auth.AppendToken(o.file, token); err != nil {
		return fmt.Errorf("--append: %w", err)
	}
	sayf(notes, "Added %s to %s. This is its secret, which is shown only now:", token.Name, o.file)
	_, err = fmt.Fprintln(out, secret)
	return err
}
