from meshcast.serve.app import create_app as create_app
from meshcast.serve.listening import ServeOptions as ServeOptions
from meshcast.serve.listening import serve_page as serve_page
