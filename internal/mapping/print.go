package mapping

import (
	"fmt"
	"io"
	"strings"

	"github.com/activityd/activityd/internal/schema"
)

// PrintViews writes what a site's database gets, but for the triggers, in statements for the MySQL
// client: columns, indexes, the views, and how to bring up what triggers keep.
func (m *Map) PrintViews(out io.Writer) error {
	var text strings.Builder
	fmt.Fprintf(&text, "-- activityd: what %s makes of the site's tables. Run 1 and 2 yourself, when your tables may be\n"+
		"-- altered: docs/adoption.md says how long that takes. `activityd schema --apply --map` does 3.\n\n"+
		"-- 1. Columns. INVISIBLE keeps them from statements that do not name them; MySQL before 8.0.23 does not know it.\n", m.file)
	for _, c := range m.Columns() {
		text.WriteString(c.Statement() + ";\n")
	}
	text.WriteString("\n-- 2. Indexes. Leave out those of which you have the like.\n")
	for _, i := range m.Indexes() {
		text.WriteString(i.Statement() + ";\n")
	}
	text.WriteString("\n-- 3. The views. They read in the name of the user who makes them.\n" +
		"CREATE DATABASE IF NOT EXISTS " + schema.Quote(m.database) + ";\n")
	for _, v := range m.Views() {
		text.WriteString(v.Statement + ";\n")
	}
	const session = "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ;\n"
	text.WriteString("\n-- 4. The last uploads, brought up for some hundred thousand members at a time: before the triggers are installed,\n" +
		"-- as each that they see is a task, and once more afterwards. It may run while the site works.\n" +
		session + m.fillUsers("1", "100000") + ";\n")
	if copies := m.fillCopies("1", "100000"); len(copies) > 0 {
		text.WriteString("\n-- 5. The copies, likewise: once the triggers are installed, and before activityd is started.\n" + session)
		for _, statement := range copies {
			text.WriteString(statement + ";\n")
		}
	}
	_, err := io.WriteString(out, text.String())
	return err
}

// PrintTriggers writes the triggers, in statements for the MySQL client.
func (m *Map) PrintTriggers(out io.Writer) error {
	var text strings.Builder
	fmt.Fprintf(&text, "-- activityd: the triggers that %s makes. Install them by `activityd schema --triggers --apply --map`, which\n"+
		"-- replaces older ones without missing a change.\n\n"+
		"-- A trigger keeps the sql_mode of the session that makes it.\n"+
		"SET SESSION sql_mode = 'STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION';\n\nDELIMITER //\n\n", m.file)
	for _, t := range m.Triggers().List {
		text.WriteString(t.Statement() + "//\n\n")
	}
	text.WriteString("DELIMITER ;\n")
	_, err := io.WriteString(out, text.String())
	return err
}
