package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/activityd/activityd/internal/auth"
)

// tokenOptions are the flags of the command token.
type tokenOptions struct {
	scopes string
	rate   string
	burst  int
	file   string
}

func newToken() *cobra.Command {
	o := tokenOptions{}
	cmd := &cobra.Command{
		Use:   "token NAME",
		Short: "Make a token: a secret for a client, and its line for --token-file",
		Long: "Make a token. The secret is printed once and kept nowhere: give it to the client, which\n" +
			"sends it as Authorization: Bearer SECRET. The line with its hash belongs into the file\n" +
			"that serve is given as --token-file; --append writes it there, and a running serve takes\n" +
			"it over within a second or two. To revoke a token, delete its line.\n\n" +
			"The scope read is for asking, write for enqueuing tasks; admin may both, and sees in\n" +
			"explanations what members may not. NAME is what the log calls the client.",
		Example: "  activityd token homepage --scopes read --rate 500/s --append tokens\n" +
			"  activityd token uploads --scopes write",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return makeToken(cmd.Context(), args[0], o, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.scopes, "scopes", "", "what it is good for, with commas: `read,write,admin` (required)")
	f.StringVar(&o.rate, "rate", "", "max requests in a second, minute or hour, for each process of serve, as in `100/s`; without it there is no limit")
	f.IntVar(&o.burst, "burst", 0, "max requests at once, after a pause; 0: what the rate brings in a second")
	f.StringVar(&o.file, "append", "", "`file` to add the line to; made if there is none, for you alone to read")
	completeFlag(cmd, "scopes", []string{"read", "write", "admin"})
	return cmd
}

// makeToken prints to out what is to be kept, the secret first, and to notes what
// to do with it.
func makeToken(ctx context.Context, name string, o tokenOptions, out, notes io.Writer) error {
	scopes, err := auth.ParseScope(o.scopes)
	if err != nil {
		return fmt.Errorf("--scopes: %w", err)
	}
	limit, err := o.limit()
	if err != nil {
		return err
	}
	token, secret, err := auth.Issue(name, scopes, limit)
	if err != nil {
		return fmt.Errorf("NAME: %w", err)
	}
	if o.file == "" {
		sayf(notes, "The first line is the secret, which is shown only now; the second belongs into the token file.")
		_, err = fmt.Fprintf(out, "%s\n%s\n", secret, token)
		return err
	}
	if err := auth.AppendToken(ctx, o.file, token); err != nil {
		return fmt.Errorf("--append: %w", err)
	}
	sayf(notes, "Added %s to %s. This is its secret, which is shown only now:", token.Name, o.file)
	_, err = fmt.Fprintln(out, secret)
	return err
}

func (o tokenOptions) limit() (auth.Limit, error) {
	if o.rate == "" {
		if o.burst != 0 {
			return auth.Limit{}, errors.New("--burst: needs a --rate, as in --rate 100/s --burst 200")
		}
		return auth.Limit{}, nil
	}
	limit, err := auth.ParseLimit(o.rate, o.burst)
	if err != nil {
		return auth.Limit{}, fmt.Errorf("--rate, --burst: %w", err)
	}
	return limit, nil
}
