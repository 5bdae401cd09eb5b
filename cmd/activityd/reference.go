package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/activityd/activityd/internal/settings"
)

const exampleHead = `# The settings of activityd. All are commented out, with their defaults. Put values in single
# quotes, so that systemd and shells read the same.`

// newReference returns the hidden command that scripts/dist makes the example of /etc/activityd/environment with.
func newReference() *cobra.Command {
	return &cobra.Command{
		Use:    "reference",
		Short:  "Print the example of /etc/activityd/environment",
		Args:   cobra.NoArgs,
		Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprint(cmd.OutOrStdout(), settings.Example(exampleHead, new(config).groups()))
			return err
		},
	}
}
