package schema

import (
	"cmp"
	"slices"
	"strings"
)

// unfit returns why a column cannot hold what is read or written there; "" if it can.
func (c wantedColumn) unfit(have row, inView bool) string {
	is := "is " + have["column_type"] + ": want " + string(c.kind)
	// Where tables are put together by UNION, servers make decimals of numbers.
	whole := integers[have["data_type"]] != 0 || have["data_type"] == "decimal" && have["numeric_scale"] == "0"
	switch c.kind {
	case aNumber:
		if !whole {
			return is
		}
	case aFlag:
		if !whole && have["column_type"] != "bit(1)" {
			return is + "; others would count as yes or no by chance"
		}
	case aDate:
		// A generated column may be NULL on MariaDB, whatever it is made of.
		plain := !inView && !strings.Contains(strings.ToUpper(have["extra"]), "GENERATED")
		switch {
		case !whole:
			return is
		case c.name == "date_upload" && plain && have["is_nullable"] == "YES":
			return "may be NULL: a photo without a date fails the answer that it is in"
		}
	case aText:
		switch {
		case have["collation_name"] == "" || have["data_type"] == "enum":
			return is
		case have["is_nullable"] == "YES":
			return "may be NULL: a row without it fails the answer that it is in"
		}
	case aVisibility:
		return unfitVisibility(have, is+" "+strings.Join(Visibilities(), ", "))
	}
	return ""
}

// isSigned reports whether a column of ids or dates may have numbers below 0.
func (c wantedColumn) isSigned(have row) bool {
	return (c.kind == aNumber || c.kind == aDate) && !strings.Contains(have["column_type"], "unsigned")
}

// unfitVisibility is strict: a word that is compared with a number is 0, which may be the
// number for private.
func unfitVisibility(have row, is string) string {
	switch have["data_type"] {
	case "char", "varchar":
		return ""
	case "enum":
		words := Words(have["column_type"])
		if !slices.ContainsFunc(Visibilities(), func(word string) bool { return word != "private" && slices.Contains(words, word) }) {
			return is + "; no photo would ever be shown"
		}
		return ""
	}
	return is + "; MySQL takes each word for the number 0, so that what is private may be shown"
}

// bitsOf returns the bits of the largest number of a column; a decimal counts as wide enough.
func bitsOf(have row) int {
	bits := cmp.Or(8*integers[have["data_type"]], 64)
	if !strings.Contains(have["column_type"], "unsigned") {
		bits--
	}
	return bits
}

// integers are the types of whole numbers, with their sizes in bytes.
var integers = map[string]int{"tinyint": 1, "smallint": 2, "mediumint": 3, "int": 4, "bigint": 8}
