package schema

// TableStatements returns the statements of schema.sql.
func TableStatements() (list []string) {
	for _, t := range wanted {
		list = append(list, t.statement)
	}
	return list
}

// Columns returns the names of the columns of a table of schema.sql.
func Columns(table string) (names []string) {
	for _, t := range wanted {
		for _, c := range t.columns {
			if t.name == table {
				names = append(names, c.name)
			}
		}
	}
	return names
}
