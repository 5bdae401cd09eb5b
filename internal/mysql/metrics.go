package mysql

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

var connections = promauto.NewGaugeVec(prometheus.GaugeOpts{
	Name: "activityd_mysql_connections",
	Help: "Open connections to MySQL by database and server_id; two servers of one database: one is a primary by mistake, or a failover is under way.",
}, []string{"database", "server_id"})
