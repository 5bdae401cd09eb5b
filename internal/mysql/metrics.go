package mysql

import "github.com/prometheus/client_golang/prometheus"

// Connections counts the connections of all pools of this process. It is registered by who wants it.
var Connections = prometheus.NewGaugeVec(prometheus.GaugeOpts{
	Name: "activityd_mysql_connections",
	Help: "Open connections to MySQL by database and server_id; two servers of one database: one is a primary by mistake, or a failover is under way.",
}, []string{"database", "server_id"})
