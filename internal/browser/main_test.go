// Package browser has the tests that look at pages in a real browser.
package browser

import (
	"testing"

	"github.com/activityd/activityd/internal/testing/servertest"
)

func TestMain(m *testing.M) { servertest.Main(m) }
