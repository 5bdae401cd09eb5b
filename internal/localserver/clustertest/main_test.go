package clustertest_test

import (
	"testing"

	"github.com/activityd/activityd/internal/localserver/servertest"
)

func TestMain(m *testing.M) { servertest.Main(m) }
