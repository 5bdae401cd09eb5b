package httpserver

// Name is the name that Listen was given.
func (s *Server) Name() *string { return &s.name }
