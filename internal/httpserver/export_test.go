package httpserver

// Name is the name that Listen was given.
func (s *Server) Name() *string { return &s.name }

// DefaultConnections is the bound of this process.
func DefaultConnections() int { return defaultConnections() }

// ConnectionsFor is the bound of a process that may have so many files open.
func ConnectionsFor(files uint64) int { return connectionsFor(files) }
