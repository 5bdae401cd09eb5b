package inspect

// Table has a row of cells for each thing, below the names of the columns.
type Table struct {
	Head []string
	Rows [][]string
}
