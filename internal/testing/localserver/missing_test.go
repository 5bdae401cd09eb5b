package localserver

import (
	"strings"
	"testing"
)

// The test changes the folders that are searched, so it is not parallel.
func TestMissingServersAreNamedWithTheirPackage(t *testing.T) {
	for _, variable := range []string{"PATH", "ACTIVITYD_TEST_MYSQLD", "ACTIVITYD_TEST_REDIS"} {
		t.Setenv(variable, "")
	}
	old := serverFolders
	serverFolders = []string{t.TempDir()}
	t.Cleanup(func() { serverFolders = old })
	_, mysqlErr := StartMySQL(t.Context())
	_, redisErr := StartRedis(t.Context())
	for pkg, err := range map[string]error{"mariadb-server": mysqlErr, "redis-server": redisErr} {
		if err == nil || !strings.Contains(err.Error(), "apt-get install "+pkg) {
			t.Errorf("error %v does not say to install %s", err, pkg)
		}
	}
}
