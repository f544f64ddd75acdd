"""The savings report's figures, their JSON form, and the `/admin/savings` view."""
