from meshcast.plots.drawing import check_plot as check_plot
from meshcast.plots.drawing import save_figure as save_figure
from meshcast.plots.of_comparison import comparison_figure as comparison_figure
from meshcast.plots.of_prediction import prediction_figure as prediction_figure
from meshcast.plots.of_search import search_figure as search_figure
