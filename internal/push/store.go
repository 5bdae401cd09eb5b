package push

import (
	"database/sql"
	"time"
)

// MySQL keeps devices, settings, mutes, events and receipts in tables of activityd's own.
type MySQL struct {
	db *sql.DB
}

// NewMySQL returns a store over db, which the caller closes.
func NewMySQL(db *sql.DB) *MySQL { return &MySQL{db: db} }

// StoredEvent is an event as it was targeted first. It never changes.
type StoredEvent struct {
	Event
	Number  uint64 // in the order in which they were stored
	Task    uint64 // the notify task that targets it
	Created time.Time
	Expires time.Time
}
