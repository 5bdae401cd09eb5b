package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/tasks"
)

func newEnqueue() *cobra.Command {
	c := &config{}
	cmd := &cobra.Command{
		Use:   "enqueue TYPE USER [CONTACT]",
		Short: "Enqueue one task and print its id",
		Long: "Enqueue one task and print its id, once it is committed.\n\n" +
			"TYPE is add_contact or remove_contact, with USER and CONTACT, or upload, with USER.",
		Example: "  activityd enqueue add_contact 12345 98765\n  activityd enqueue upload 98765",
		Args:    cobra.RangeArgs(2, 3),
		RunE: func(cmd *cobra.Command, args []string) error {
			task, err := parseTask(args)
			if err != nil {
				return err
			}
			if err := c.check(cmd.Flags()); err != nil {
				return err
			}
			return enqueueOne(cmd, c, task)
		},
	}
	c.mysqlFlags(cmd.Flags())
	return cmd
}

// parseTask reads TYPE USER [CONTACT]; its errors name the argument.
func parseTask(args []string) (tasks.New, error) {
	user, err := member.Parse(args[1])
	if err != nil {
		return tasks.New{}, fmt.Errorf("USER: %w", err)
	}
	var contact member.ID
	if len(args) == 3 {
		if contact, err = member.Parse(args[2]); err != nil {
			return tasks.New{}, fmt.Errorf("CONTACT: %w", err)
		}
	}
	return tasks.Parse(tasks.Type(args[0]), user, contact)
}

func enqueueOne(cmd *cobra.Command, c *config, task tasks.New) error {
	db, err := openMySQL(c)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }() // the task is committed by then
	ids, err := tasks.NewMySQLQueue(db, tasks.QueueOptions{Owner: processName()}).Enqueue(cmd.Context(), []tasks.New{task})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(cmd.OutOrStdout(), ids[0])
	return err
}
