package plural_test

import (
	"fmt"

	"github.com/activityd/activityd/internal/plural"
)

func ExampleOf() {
	for n := range 3 {
		fmt.Println(plural.Of(n, "set or answer is wrong", "sets or answers are wrong"))
	}
	// Output:
	// 0 sets or answers are wrong
	// 1 set or answer is wrong
	// 2 sets or answers are wrong
}
