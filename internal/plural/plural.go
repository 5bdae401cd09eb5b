// Package plural writes numbers of things for people to read.
package plural

import "fmt"

// Of writes a number of things, as in "1 set was" and "2 sets were": one is what
// follows the number 1, many what follows all others.
func Of[N ~int | ~int64 | ~uint64](n N, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
